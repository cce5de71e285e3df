"""The last call that a program makes, recorded with its tensors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from msprobe_hooks import record
from msprobe_hooks.dump.reader import read_dump
from pytest_msprobe.engine.replay.call import Call, read_call


def recorded_call(folder: Path, program: Callable[[], object]) -> Call:
    """Return the last call that a program makes, recorded with its tensors."""
    with record(folder, task="tensor", level="L1"):
        program()
    dump = read_dump(next(folder.rglob("dump.json")))
    return read_call(dump, [name for name in dump.api_names if name.endswith("forward")][-1])
