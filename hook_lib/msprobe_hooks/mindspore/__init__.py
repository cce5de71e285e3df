"""Recording a dump from MindSpore code and watching a training, with msprobe's names and arguments.

Changing ``from msprobe.mindspore import ...`` to ``from msprobe_hooks.mindspore import ...`` moves a script over.
Importing this package imports MindSpore.
"""

from __future__ import annotations

from msprobe_hooks.instruments.watch.mindspore_trainer_mon import TrainerMon
from msprobe_hooks.mindspore.debugger import MsprobeStep, PrecisionDebugger
from msprobe_hooks.mindspore.seeds import seed_all

__all__ = ["MsprobeStep", "PrecisionDebugger", "TrainerMon", "seed_all"]
