"""Exploring the call of a record, as a run does after its verdict."""

from __future__ import annotations

from typing import Any

import msgspec

from msprobe_hooks.dump.reader import Dump
from msprobe_standards import Policy
from pytest_msprobe.engine.replay.call import read_call
from pytest_msprobe.engine.replay.check import Replay
from pytest_msprobe.engine.replay.trials.config import ReplayConfig
from pytest_msprobe.engine.torch_framework import TorchFramework
from pytest_msprobe.extensions.explore.explore import Exploration, explore
from pytest_msprobe.extensions.explore.options import ExploreOptions


def explored(
    dump: Dump, record: str, device: Any, *, examples: int = 100, seconds: float = 60, seed: int = 0
) -> Exploration:
    """Check a record on a device, then explore its inputs."""
    key, _, direction = record.rpartition(".")
    replay = Replay(
        read_call(dump, f"{key}.forward"), ReplayConfig(device, Policy.load("default"), TorchFramework(), seed=seed)
    )
    recorded = replay.judge("backward" if direction == "backward" else "forward")
    body = msgspec.json.decode(dump.records[f"{key}.forward"])
    return explore(replay, body, recorded, ExploreOptions(examples, seconds))
