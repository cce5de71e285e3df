"""What is asked of the card's library: the one call, and the file that it reads."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from msprobe_hooks.dump.names import backward_of
from msprobe_hooks.dump.writer import FILE_MODE, write_error
from msprobe_hooks.errors import ConfigError
from msprobe_hooks.recording.config import API_NAME, OVERFLOW_TASKS, Settings

_ALLOWED = 'the full name of one record at level L2, as in ["Functional.linear.0.backward"]'


def wanted_record(settings: Settings) -> str:
    """Return the name of the record whose kernels are to be dumped. Raises ConfigError where it is not one."""
    if settings.task in OVERFLOW_TASKS or settings.task == "structure":
        raise ConfigError("task", settings.task, "statistics or tensor at level L2")
    if settings.scope:
        raise ConfigError("scope", list(settings.scope), "no such key at level L2: list names the call")
    if len(settings.list) != 1 or not API_NAME.fullmatch(settings.list[0]):
        raise ConfigError("list", list(settings.list), _ALLOWED)
    return settings.list[0]


def of_one_call(settings: Settings, forward: str) -> Settings:
    """Return the settings of the recording beside it: what level L1 keeps of the same call."""
    return replace(settings, level="L1", list=(forward, backward_of(forward)))


def write_kernel_config(folder: Path, rank: int | None) -> Path:
    """Write the configuration that ``torch_npu.npu.set_dump`` takes, byte for byte as msprobe; return where it is.

    Raises RecordingError where it cannot be written.
    """
    path = folder / ("kernel_config.json" if rank is None else f"kernel_config_{rank}.json")
    settings = {"dump_list": [], "dump_path": str(folder), "dump_mode": "all", "dump_op_switch": "on"}
    try:
        path.touch(FILE_MODE)
        path.write_text(json.dumps({"dump": settings}, indent=4))
    except OSError as error:
        raise write_error(path, "written", error) from None
    return path
