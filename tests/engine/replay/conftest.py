from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from msprobe_standards import Policy
from pytest_msprobe.devices.cpu import CpuDevice
from pytest_msprobe.engine.frameworks.torch import TorchFramework
from pytest_msprobe.engine.replay.call import Call
from pytest_msprobe.engine.replay.check import Replay
from pytest_msprobe.engine.replay.trials.config import ReplayConfig
from pytest_msprobe.results.result import CallResult
from tests.support.devices import Altered
from tests.support.dumps.recorder import Recorder


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    """Records calls that are made through it, with torch's generator seeded."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield Recorder()


@pytest.fixture(scope="session")
def default_policy() -> Policy:
    return Policy.load("default")


@pytest.fixture
def check(default_policy: Policy) -> Any:
    """Check a call on the CPU (or on a given device) and return both directions' results."""

    def run(call: Call, *, device: Any = None, **options: Any) -> CallResult:
        replay = Replay(call, ReplayConfig(device or CpuDevice(), default_policy, TorchFramework(), **options))
        return CallResult(replay.forward(), replay.backward() if call.backward else None)

    return run


@pytest.fixture
def device_that() -> Callable[[Callable[[Any, Any, Any], Any]], Altered]:
    """Make a device whose forward calls go through ``alter(func, args, kwargs)``."""
    return Altered
