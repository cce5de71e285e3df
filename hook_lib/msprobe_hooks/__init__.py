"""Recording a dump from any PyTorch or MindSpore code, watching a training, and the files of both as data.

Importing this package imports no framework; recording and watching import the one that is looked at.
PYTEST_DONT_REWRITE: no test reads an assertion of this package.
"""

from __future__ import annotations

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
from msprobe_hooks.extensions.checkpoint.weight_sync import write_weights
from msprobe_hooks.extensions.environment.environment import write_environment
from msprobe_hooks.extensions.feed.feeding import feed
from msprobe_hooks.extensions.fix.fixing import fix
from msprobe_hooks.extensions.monitor.grad_probe.comparator import GradComparator
from msprobe_hooks.extensions.monitor.series.conversion import csv2tensorboard_by_step
from msprobe_hooks.extensions.monitor.watch.trainer_mon import TrainerMon
from msprobe_hooks.extensions.monitor.watching import watch, watch_mindspore
from msprobe_hooks.extensions.repeated_steps.replaying import replay_step
from msprobe_hooks.record import record

__all__ = [
    "ConfigError",
    "DifferingStepError",
    "DumpError",
    "FeedError",
    "GradComparator",
    "MonitorError",
    "PrecisionDebugger",
    "RecordError",
    "RecordingError",
    "StartError",
    "TrainerMon",
    "csv2tensorboard_by_step",
    "feed",
    "fix",
    "module_dump",
    "module_dump_end",
    "record",
    "replay_step",
    "seed_all",
    "watch",
    "watch_mindspore",
    "write_environment",
    "write_weights",
]
