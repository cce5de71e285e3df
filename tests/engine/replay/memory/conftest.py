from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from msprobe_hooks import record
from msprobe_hooks.dump.reader import read_dump
from pytest_msprobe.engine.replay.call import Call, read_call


@pytest.fixture
def recorded(tmp_path: Path) -> Callable[..., Call]:
    """Record a program and return its call of an API, the last one where it makes several."""

    def run(program: Callable[[], object], api: str, task: str = "statistics") -> Call:
        with torch.random.fork_rng():
            torch.manual_seed(0)
            with record(tmp_path / task, task=task, level="L1"):
                program()
        dump = read_dump(next((tmp_path / task).rglob("dump.json")))
        names = [name for name in dump.api_names if name.split(".")[1] == api and name.endswith("forward")]
        return read_call(dump, names[-1])

    return run
