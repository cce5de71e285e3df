"""Cases saved from dumps that are written on the spot."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from msprobe_hooks.dump.reader import read_dump
from msprobe_standards import Policy
from pytest_msprobe.engine.frameworks.torch import TorchFramework
from pytest_msprobe.engine.replay.call import read_call
from pytest_msprobe.engine.replay.check import Replay
from pytest_msprobe.engine.replay.trials.config import ReplayConfig
from pytest_msprobe.modes.check.cases.save import origin_of, save_case
from pytest_msprobe.modes.check.cases.saved_case import SavedCase
from pytest_msprobe.storage.limits import SaveOptions
from tests.support.dumps.dump_files import Json, write_dump
from tests.support.replays.devices import OneOff


@pytest.fixture
def setup() -> ReplayConfig:
    """A device whose results are all wrong, and a seed other than the default."""
    return ReplayConfig(OneOff(), Policy.load("default"), TorchFramework(), seed=3)


@pytest.fixture
def limits(tmp_path: Path) -> SaveOptions:
    return SaveOptions(tmp_path / "cases", 2**30, 2**30)


@pytest.fixture
def replay(tmp_path: Path, setup: ReplayConfig) -> Callable[..., Any]:
    """Check the call of a record in a dump of these records, and return its replay, its result and its origin."""

    def run(records: Json, record: str, setup: ReplayConfig = setup) -> tuple[Replay, Any, Any]:
        dump = read_dump(write_dump(tmp_path, records))
        made = Replay(read_call(dump, f"{record.rpartition('.')[0]}.forward"), setup)
        result = made.judge("backward" if record.endswith(".backward") else "forward")
        return made, result, origin_of(dump, record, "default", None)

    return run


@pytest.fixture
def save(replay: Any, limits: SaveOptions) -> Callable[..., SavedCase]:
    """Save the case of a failing record."""

    def run(records: Json, record: str, limits: SaveOptions = limits) -> SavedCase:
        made, result, origin = replay(records, record)
        assert result.verdict.outcome == "fail", result
        return save_case(made, result, origin, limits)

    return run
