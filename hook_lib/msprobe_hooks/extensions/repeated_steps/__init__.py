"""Steps of a training that are computed twice, to find a wrong card. Needs the extension mindspore.

`replay_step` computes a step again from the same state and compares both; of a step that differs it records the calls
and names the first that does, the rank and the card.
Public name: ``replay_step``. It adds no key to ``config.json`` and no command.
Files: ``repeats<rank>.json`` and recordings of steps that differ, in the folder that the program names.
Without it ``msprobe_hooks`` has no ``replay_step``.
Take it out by deleting this folder, tests/extensions/repeated_steps and tests/mindspore/test_repeated_steps.py.

Importing its modules loads isal, mindspore, msgspec and torch.
"""

from __future__ import annotations

EXPORTS = {"replay_step": "replaying"}
