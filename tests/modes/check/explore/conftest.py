"""Calls to explore, on devices with and without faults."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import msgspec
import pytest
import torch

from msprobe_hooks.dump.reader import Dump, read_dump
from msprobe_standards import Policy
from pytest_msprobe.devices.sim import SimDevice
from pytest_msprobe.engine.replay.call import read_call
from pytest_msprobe.engine.replay.check import Replay
from pytest_msprobe.engine.replay.trial import Setup
from pytest_msprobe.engine.values.tree import map_tensors
from pytest_msprobe.modes.check.explore.exploring import Exploration, explore
from pytest_msprobe.modes.check.explore.options import ExploreOptions

POLICY = Policy.load("default")


@pytest.fixture(autouse=True)
def no_database() -> Iterator[None]:
    """Let no run depend on another one."""
    former = hypothesis.settings.get_current_profile_name()
    hypothesis.settings.register_profile("no-database", database=None)
    hypothesis.settings.load_profile("no-database")
    yield
    hypothesis.settings.load_profile(former)


class Faulty(SimDevice):
    """A device whose results go through a function."""

    def __init__(self, change: Callable[[torch.Tensor], torch.Tensor]) -> None:
        self._change = change

    def call(self, func: Any, args: Any, kwargs: Any, *, record: str) -> Any:
        return map_tensors(self._changed, func(*args, **kwargs))

    def _changed(self, tensor: torch.Tensor) -> torch.Tensor:
        if not tensor.is_floating_point() or not tensor.numel():
            return tensor
        return (
            tensor + (self._change(tensor.detach().clone()) - tensor.detach())
            if tensor.requires_grad
            else (self._change(tensor.clone()))
        )


def explored(
    dump: Dump, record: str, device: Any, *, examples: int = 100, seconds: float = 60, seed: int = 0
) -> Exploration:
    key, _, direction = record.rpartition(".")
    replay = Replay(read_call(dump, f"{key}.forward"), Setup(device, POLICY, seed=seed))
    recorded = replay.judge("backward" if direction == "backward" else "forward")
    body = msgspec.json.decode(dump.records[f"{key}.forward"])
    return explore(replay, body, recorded, ExploreOptions(examples, seconds))


@pytest.fixture
def dump_of(tmp_path: Path) -> Callable[..., Dump]:
    def make(records: dict[str, Any]) -> Dump:
        path = tmp_path / "dump.json"
        path.write_text(json.dumps({"task": "statistics", "level": "L1", "framework": "pytorch", "data": records}))
        return read_dump(path)

    return make
