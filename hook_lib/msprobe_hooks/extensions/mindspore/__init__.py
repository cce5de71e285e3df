"""Recording a dump from MindSpore code and watching a training, with msprobe's names and arguments.

A script moves over by ``from msprobe_hooks.extensions.mindspore import ...``.
Importing one of the names imports MindSpore.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from msprobe_hooks.extensions.mindspore.debugger import MsprobeStep, PrecisionDebugger
    from msprobe_hooks.extensions.mindspore.seeds import seed_all
    from msprobe_hooks.extensions.monitor.watch.mindspore_trainer_mon import TrainerMon

_HOMES = {
    "MsprobeStep": "mindspore.debugger",
    "PrecisionDebugger": "mindspore.debugger",
    "TrainerMon": "monitor.watch.mindspore_trainer_mon",
    "seed_all": "mindspore.seeds",
}

__all__ = ["MsprobeStep", "PrecisionDebugger", "TrainerMon", "seed_all"]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"msprobe_hooks.extensions.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
