"""Calls that are screened before golden runs, and what screening alone says of them."""

from __future__ import annotations

from functools import partial
from typing import Any

from msprobe_hooks.dump.names import Direction
from msprobe_standards import Policy
from pytest_msprobe.devices.cpu import CpuDevice
from pytest_msprobe.engine.replay.check import Replay
from pytest_msprobe.engine.replay.trials.config import ReplayConfig
from pytest_msprobe.engine.torch_framework import TorchFramework
from pytest_msprobe.extensions.screening.options import screened_of
from pytest_msprobe.extensions.screening.screen_trial import cleared


def directions_cleared(replay: Replay) -> list[Direction]:
    """Return which directions of a call with gradients are cleared."""
    trial, setup = replay.trial, replay.setup
    of_call = partial(setup.policy.select, replay.call.api, input_dtypes=trial.subject.arguments.tensor_dtypes)

    def select(leaf: Any, *, backward: bool) -> Any:
        return of_call(output_dtype=leaf.dtype, backward=backward)

    directions: tuple[Direction, ...] = ("forward", "backward")
    return [each for each in directions if cleared(trial, each, partial(select, backward=each == "backward"), setup)]


def replayed(call: Any, policy: Policy, device: Any = None, **options: Any) -> Replay:
    """Return the replay of a call of any size that is screened."""
    return Replay(
        call, ReplayConfig(device or CpuDevice(), policy, TorchFramework(), **({"screen_above": 0} | options))
    )


def ran_exactly(replay: Replay) -> bool:
    """Return whether a golden run was needed."""
    return "golden" in vars(replay.trial)


def assert_cleared_without_golden_run(call: Any, policy: Policy) -> None:
    """Assert that screening alone clears both directions of a call, with the outputs that an exact check has."""
    replay = replayed(call, policy)
    results = [replay.forward(), replay.backward()]
    assert [result.outcome for result in results] == ["pass", "pass"]
    assert all(screened_of(result.extras) for result in results)
    assert "cleared by screening: residuals at most 0." in results[0].verdict.reason
    assert not ran_exactly(replay)
    exactly = replayed(replay.call, policy, screen_above=None)
    exact = [exactly.forward(), exactly.backward()]
    assert [[o.path for o in each.outputs] for each in results] == [[o.path for o in each.outputs] for each in exact]
