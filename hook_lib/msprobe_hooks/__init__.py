"""Recording a dump from any PyTorch or MindSpore code, and the dump as data: names, records and files.

Importing this package imports no framework; recording imports the one that is recorded.
"""

from __future__ import annotations

from msprobe_hooks.debugger import PrecisionDebugger, module_dump, module_dump_end, seed_all
from msprobe_hooks.errors import ConfigError, DumpError, MonitorError, RecordError, RecordingError
from msprobe_hooks.instruments.grad_probe.comparator import GradComparator
from msprobe_hooks.record import record

__all__ = [
    "ConfigError",
    "DumpError",
    "GradComparator",
    "MonitorError",
    "PrecisionDebugger",
    "RecordError",
    "RecordingError",
    "module_dump",
    "module_dump_end",
    "record",
    "seed_all",
]
