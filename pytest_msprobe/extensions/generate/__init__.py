"""Stand-alone tests of a dump's records, which a person can read, change and pass on. Needs the extension mindspore.

``pytest-msprobe generate DUMP FOLDER`` takes these steps: which records (``generator``), what is written for them
(``module_plan``, ``inputs``, ``language``), where (``output_folder``), and whether they fail (``subprocess_run``). It
writes modules ``test_*.py`` and what they share into the folder, with the recorded tensors where that is asked for.
Records of PyTorch need no other extension.

Take it out by deleting this folder and tests/extensions/generate.
"""
