"""Environment of a training, in one file for each rank. Needs the extension mindspore.

`write_environment` takes down what a training was started with: settings, versions, seeds, switches of the frameworks,
first batches, first weights and calls that draw random numbers.
Public name: ``write_environment``. It adds no key to ``config.json``.
Files: ``rank<n>.json`` in the folder that the program names.
Command: that of `pytest_msprobe.extensions.environment`, which compares the files of two trainings.
Without it recordings are the same, and ``msprobe_hooks`` has no ``write_environment``.
Take it out by deleting this folder, pytest_msprobe/extensions/environment and tests/extensions/environment.

Importing its modules loads isal, mindspore, msgspec and torch.
"""

from __future__ import annotations

EXPORTS = {"write_environment": "environment"}
