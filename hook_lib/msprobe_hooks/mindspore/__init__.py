"""Recording a dump from MindSpore code, with msprobe's names and arguments.

Changing ``from msprobe.mindspore import ...`` to ``from msprobe_hooks.mindspore import ...`` moves a script over.
Importing this package imports MindSpore.
"""

from __future__ import annotations

from msprobe_hooks.mindspore.debugger import MsprobeStep, PrecisionDebugger
from msprobe_hooks.mindspore.seeds import seed_all

__all__ = ["MsprobeStep", "PrecisionDebugger", "seed_all"]
