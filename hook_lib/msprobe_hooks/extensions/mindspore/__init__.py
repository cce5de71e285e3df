"""Recording a dump from MindSpore code and watching a training, with msprobe's names and arguments.

A script moves over by ``from msprobe_hooks.extensions.mindspore import ...``.
Importing this package imports MindSpore.
"""

from __future__ import annotations

from msprobe_hooks.extensions.mindspore.debugger import MsprobeStep, PrecisionDebugger
from msprobe_hooks.extensions.mindspore.seeds import seed_all
from msprobe_hooks.extensions.monitor.watch.mindspore_trainer_mon import TrainerMon

__all__ = ["MsprobeStep", "PrecisionDebugger", "TrainerMon", "seed_all"]
