"""Failures of 16-bit calls are decided against golden in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional

from msprobe_standards import Policy
from pytest_msprobe.devices.cpu import CpuDevice
from pytest_msprobe.engine.replay.check import Replay
from pytest_msprobe.engine.replay.trials.config import ReplayConfig
from pytest_msprobe.engine.torch_framework import TorchFramework
from pytest_msprobe.results.result import DirectionResult
from tests.support.replays.devices import Altered
from tests.support.replays.functions import check_function

BF16 = torch.bfloat16
# In float32 the exponential of what is below -88.7 overflows: golden is -0 there, where bfloat16 has normal numbers.
TAIL = torch.linspace(-92, -88.75, 64).to(BF16)


def exact_silu(x: torch.Tensor) -> torch.Tensor:
    return functional.silu(x.double()).to(x.dtype)


class FlashInFloat32(torch.autograd.Function):
    """Attention that computes in float32 and rounds once, with gradients made of the results."""

    @staticmethod
    def forward(ctx: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(q, k, v)
        return functional.scaled_dot_product_attention(q.float(), k.float(), v.float()).to(q.dtype)

    @staticmethod
    def backward(ctx: Any, *arriving: torch.Tensor) -> Any:
        q, k, v = (each.float() for each in ctx.saved_tensors)
        gradient, scale = arriving[0].float(), q.shape[-1] ** -0.5
        weights = torch.softmax((q * scale) @ k.transpose(-1, -2), -1)
        drift = (gradient * (weights @ v)).sum(-1, keepdim=True)
        of_scores = weights * (gradient @ v.transpose(-1, -2) - drift) * scale
        found = (of_scores @ k, of_scores.transpose(-1, -2) @ q, weights.transpose(-1, -2) @ gradient)
        return tuple(each.to(BF16) for each in found)


def exact_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return functional.scaled_dot_product_attention(q.double(), k.double(), v.double()).to(q.dtype)


@pytest.fixture
def checked(default_policy: Policy) -> Callable[..., list[DirectionResult]]:
    """Check a function against a golden one on the CPU."""

    def run(target: Any, golden: Any, *args: torch.Tensor, backward: bool = False) -> list[DirectionResult]:
        setup = ReplayConfig(CpuDevice(), default_policy, TorchFramework())
        return check_function(target, args, {}, name="Call.0", setup=setup, golden=golden, backward=backward)

    return run


def with_outliers(seed: int) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(seed)
    q, k, v = (torch.randn(1, 2, 16, 8, generator=generator).to(BF16) for _ in range(3))
    q[0, 0, 3, 2] = k[0, 0, 5, 2] = k[0, 1, 2, 1] = 1200
    q[0, 1, 7, 1] = -1200
    return tuple(each.requires_grad_() for each in (q, k, v))


@pytest.mark.parametrize("device", [lambda *args: FlashInFloat32.apply(*args), exact_attention], ids=["flash", "exact"])
def test_gradients_of_attention_with_outliers_pass_on_a_more_exact_device(checked: Any, device: Any) -> None:
    results = [
        result
        for seed in range(12)
        for result in checked(device, functional.scaled_dot_product_attention, *with_outliers(seed), backward=True)
    ]
    assert {result.verdict.outcome for result in results} == {"pass"}


def square_without_digits(x: torch.Tensor) -> torch.Tensor:
    """Return the square of small numbers; in float32 one factor is lost in a sum, on any processor."""
    return ((x + 2.0**26) - 2.0**26) * x


@pytest.mark.parametrize(("factor", "outcome"), [(1, "pass"), (1.5, "fail")])
def test_gradients_that_float32_loses_are_decided_in_float64(checked: Any, factor: float, outcome: str) -> None:
    x = torch.linspace(0.5, 2, 64).to(BF16).requires_grad_()
    results = checked(lambda x: (factor * x.double().square()).to(x.dtype), square_without_digits, x, backward=True)
    assert {result.verdict.outcome for result in results} == {outcome}
    (gradient,) = results[-1].outputs
    assert (gradient.path, gradient.golden_dtype) == ("grad.args.0", "torch.float64")


@pytest.fixture
def recorded_silu(recorder: Any) -> Any:
    return recorder.Functional.silu(TAIL)


def on_device(call: Any, alter: Any, policy: Policy) -> DirectionResult:
    source = {"args.0": TAIL}
    setup = ReplayConfig(Altered(alter), policy, TorchFramework())
    return Replay(call, setup, lambda element, path: source[path]).forward()


def test_a_rounded_result_passes_where_float32_is_zero(recorded_silu: Any, default_policy: Policy) -> None:
    result = on_device(recorded_silu, lambda func, args, kwargs: exact_silu(args[0]), default_policy)
    assert result.verdict.outcome == "pass"
    assert result.outputs[0].golden_dtype == "torch.float64"


def test_a_wrong_result_fails_there_by_golden_in_float64(recorded_silu: Any, default_policy: Policy) -> None:
    result = on_device(recorded_silu, lambda func, args, kwargs: -3 * exact_silu(args[0]), default_policy)
    assert result.verdict.outcome == "fail"
    assert result.outputs[0].golden_dtype == "torch.float64"


def test_a_right_result_costs_no_second_golden(recorded_silu: Any, default_policy: Policy) -> None:
    result = on_device(recorded_silu, lambda func, args, kwargs: func(*args, **kwargs), default_policy)
    assert result.verdict.outcome == "pass"
    assert result.outputs[0].golden_dtype == "torch.float32"


def test_policies_of_msprobe_keep_golden_in_float32(recorded_silu: Any) -> None:
    wrong = on_device(recorded_silu, lambda func, args, kwargs: args[0] + 5, Policy.load("msprobe-1.2"))
    assert wrong.verdict.outcome == "fail"
    assert wrong.outputs[0].golden_dtype == "torch.float32"
