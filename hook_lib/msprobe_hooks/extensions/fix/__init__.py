"""Calls in another precision, inside of a context or of a process. Needs the extension mindspore.

`fix` runs named calls in float32 or float64, or on the CPU, so that what this changes of a training can be watched.
`process` does so in a whole process, from the plan in a folder: `pytest_msprobe.extensions.bisect` searches with it
for the call whose precision moves a number.
Public name: ``fix``. It adds no key to ``config.json``.
Files: a process that follows a plan writes ``calls.*``, ``left.*`` and ``problem.*`` next to ``plan.json``.
Without it ``msprobe_hooks`` has no ``fix``.
Take it out by deleting this folder, pytest_msprobe/extensions/bisect, tests/extensions/fix and tests/extensions/bisect.

Importing its modules loads isal, mindspore, msgspec and torch.
"""

from __future__ import annotations

EXPORTS = {"fix": "fixing"}
