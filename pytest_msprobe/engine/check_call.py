"""The check of one recorded call in one function, for programs."""

from __future__ import annotations

from typing import Any

from msprobe_standards import Policy
from pytest_msprobe.devices.device import Device
from pytest_msprobe.engine.replay.call import Call
from pytest_msprobe.engine.replay.check import Replay
from pytest_msprobe.engine.replay.trials.config import ReplayConfig
from pytest_msprobe.engine.torch_framework import TorchFramework
from pytest_msprobe.results.result import CallResult


def check_call(call: Call, *, device: Device, policy: Policy | str = "default", **options: Any) -> CallResult:
    """Check both directions of a call on an active device.

    Args:
        call: The recorded call.
        device: An active device.
        policy: A policy, the name of a built-in one or the path of a file.
        **options: Other fields of `ReplayConfig`; without ``framework`` the call is PyTorch's.

    Returns:
        The results of the forward and, where it was recorded, the backward direction.

    Raises:
        DumpError: A tensor file of the dump is unusable.
    """
    loaded = Policy.load(policy) if isinstance(policy, str) else policy
    options = {"framework": TorchFramework(), **options}
    replay = Replay(call, ReplayConfig(device, loaded, **options))
    return CallResult(replay.forward(), replay.backward() if call.backward else None)
