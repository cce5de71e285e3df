"""Recorder of dumps from any PyTorch or MindSpore code, monitor of a training, and the files of both as data.

Importing this package imports no framework; recording and watching import the one that is looked at. Names that
extensions export, such as ``watch``, are imported when they are first used.
PYTEST_DONT_REWRITE: no test reads an assertion of this package.

Importing its modules loads msgspec.
"""

from __future__ import annotations

from typing import Any

from msprobe_hooks.debugger import PrecisionDebugger, module_dump, module_dump_end, seed_all
from msprobe_hooks.errors import (
    ConfigError,
    DifferingStepError,
    DumpError,
    FeedError,
    MonitorError,
    RecordError,
    RecordingError,
    StartError,
)
from msprobe_hooks.installed_extensions import exported, exports
from msprobe_hooks.record import record

__all__ = [
    "ConfigError",
    "DifferingStepError",
    "DumpError",
    "FeedError",
    "MonitorError",
    "PrecisionDebugger",
    "RecordError",
    "RecordingError",
    "StartError",
    "module_dump",
    "module_dump_end",
    "record",
    "seed_all",
]
__all__ += [*exports("EXPORTS")]


def __getattr__(name: str) -> Any:
    value = globals()[name] = exported("EXPORTS", name, __name__)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
