"""Recorded convolutions that are screened before golden runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from msprobe_standards import Policy
from pytest_msprobe.devices.sim import SimDevice
from pytest_msprobe.engine.replay.check import Replay
from pytest_msprobe.engine.replay.trials.config import ReplayConfig
from pytest_msprobe.engine.torch_framework import TorchFramework
from pytest_msprobe.engine.values.pytree import map_tensors
from pytest_msprobe.extensions.screening.options import screened_of
from tests.support.replays.devices import Faulty


def x(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape).to(dtype).requires_grad_()


def recorded(of: Any, name: str, dtype: torch.dtype) -> Any:
    """Record a convolution of as few channels as are screened in that dtype."""
    count = 128 if dtype == torch.float32 else 256
    weight, bias = x(count + 4, count, 3, 3, dtype=dtype), x(count + 4, dtype=dtype)
    calls: dict[str, Callable[[], Any]] = {
        "padded": lambda: of.Functional.conv2d(x(2, count, 13, 12, dtype=dtype), weight, bias, padding=(1, 1)),
        "in groups": lambda: of.Functional.conv1d(
            x(2, 2 * count, 150, dtype=dtype), weight=x(2 * count, count, 3, dtype=dtype), groups=2
        ),
        "pointwise in steps": lambda: of.Functional.conv2d(
            x(2, count, 25, 24, dtype=dtype), x(count, count, 1, 1, dtype=dtype), None, 2
        ),
        "transposed": lambda: of.Functional.conv_transpose2d(
            x(2, count + 4, 12, 12, dtype=dtype), weight, x(count, dtype=dtype), 2, 1, 1
        ),
    }
    return calls[name]()


NAMES = ("padded", "in groups", "pointwise in steps", "transposed")


class RoundedOnce(SimDevice):
    """Computes in float64, whatever the processor's own kernels of 16 bits round."""

    def call(self, func: Any, args: Any, kwargs: Any, *, record: str) -> Any:
        if not record.endswith(".forward"):
            return func(*args, **kwargs)
        result = func(*map_tensors(torch.Tensor.double, args), **map_tensors(torch.Tensor.double, kwargs))
        return result.to(args[0].dtype)


def both_ways(call: Any, policy: Policy, device: Any, above: float | None = 0) -> tuple[list[Any], bool]:
    """Return the results of both directions, and whether golden ran for any."""
    replay = Replay(call, ReplayConfig(device, policy, TorchFramework(), screen_above=above))
    results = [replay.forward(), replay.backward()]
    return results, "golden" in vars(replay.trial)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", NAMES)
def test_a_right_convolution_is_cleared_in_both_directions_without_a_golden_run(
    recorder: Any, default_policy: Policy, name: str, dtype: torch.dtype
) -> None:
    call = recorded(recorder, name, dtype)
    results, is_exact = both_ways(call, default_policy, RoundedOnce())
    assert [result.outcome for result in results] == ["pass", "pass"]
    assert all(screened_of(result.extras) for result in results)
    assert not is_exact
    exact, _ = both_ways(call, default_policy, RoundedOnce(), None)
    assert [[o.path for o in each.outputs] for each in results] == [[o.path for o in each.outputs] for each in exact]


def _last_column(result: torch.Tensor) -> torch.Tensor:
    result[..., -1] *= 1.01
    return result


def _one_channel(result: torch.Tensor) -> torch.Tensor:
    result[len(result) // 2] = result[0]
    return result


@pytest.mark.parametrize("change", [_last_column, _one_channel])
@pytest.mark.parametrize("name", NAMES)
def test_a_wrong_convolution_gets_the_verdict_of_the_exact_check(
    recorder: Any, default_policy: Policy, name: str, change: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    call = recorded(recorder, name, torch.float32)
    screened, exact = (both_ways(call, default_policy, Faulty(change), above)[0] for above in (0, None))
    for found, expected in zip(screened, exact, strict=True):
        # Not the numbers: on several threads, convolutions of the CPU differ from themselves in their last bits.
        assert found.outcome == "fail"
        assert [(each.path, each.verdict.outcome) for each in found.outputs] == [
            (each.path, each.verdict.outcome) for each in expected.outputs
        ]
        assert not screened_of(found.extras)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_nan_and_inf_among_the_operands_are_left_to_the_exact_check(
    recorder: Any, default_policy: Policy, value: float
) -> None:
    image = torch.randn(2, 128, 13, 12)
    image[1, 3, 4, 5] = value
    call = recorder.Functional.conv2d(image, torch.randn(128, 128, 3, 3), padding=1)
    replay = Replay(call, ReplayConfig(RoundedOnce(), default_policy, TorchFramework(), screen_above=0))
    assert replay.forward().outcome == "pass"
    assert "golden" in vars(replay.trial)
