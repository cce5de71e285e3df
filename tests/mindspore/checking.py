"""Dumps of MindSpore's calls, checked on this CPU."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from msprobe_hooks.dump.reader import read_dump
from msprobe_standards import Policy
from pytest_msprobe.devices.cpu import CpuDevice
from pytest_msprobe.devices.registry import DeviceRegistry
from pytest_msprobe.engine.frameworks import framework_named
from pytest_msprobe.engine.replay.call import read_call
from pytest_msprobe.engine.replay.check import Replay
from pytest_msprobe.engine.replay.trials.config import ReplayConfig
from pytest_msprobe.results.result import DirectionResult


def setup_with(device: CpuDevice | None = None, policy: str = "default", seed: int = 0) -> ReplayConfig:
    """Return how calls are checked on a device, by default on this CPU."""
    framework = framework_named("mindspore")
    return ReplayConfig(
        device or framework.device(DeviceRegistry(), "cpu"), Policy.load(policy), framework=framework, seed=seed
    )


def check(path: Path, setup: ReplayConfig) -> Iterator[DirectionResult]:
    """Check the records of a dump, one after the other."""
    dump = read_dump(path)
    for name in dump.api_names:
        if name.endswith(".forward"):
            replay = Replay(read_call(dump, name), setup)
            yield replay.forward()
            if replay.call.backward is not None:
                yield replay.backward()
