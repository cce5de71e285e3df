"""Sums in 16 bits under ``accumulation: float32``: narrow ones fail, float32 in any order passes, others are noted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.nn import functional

from msprobe_standards import Policy
from pytest_msprobe.devices.cpu import CpuDevice
from pytest_msprobe.engine.replay.check import Replay
from pytest_msprobe.engine.replay.trials.config import ReplayConfig
from pytest_msprobe.engine.torch_framework import TorchFramework
from pytest_msprobe.results.result import NARROW_SUMS, DirectionResult
from tests.corpus.correct_devices import CORRECT_DEVICES
from tests.corpus.fault import VariantDevice
from tests.support.replays.devices import Altered

BF16 = torch.bfloat16
Alter = Callable[[Any, Any, Any], Any]


@pytest.fixture
def narrow_fails(default_policy: Policy) -> Policy:
    return replace(default_policy, accumulation="float32", _selected={})


def judged(call: Any, device: Any, policy: Policy, *inputs: torch.Tensor) -> DirectionResult:
    source = {f"args.{i}": tensor for i, tensor in enumerate(inputs)}
    return Replay(
        call, ReplayConfig(device, policy, TorchFramework()), lambda element, path: source[path].clone()
    ).forward()


def of_normal(*shape: int, dtype: torch.dtype = BF16) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(3)).to(dtype)


def positive(*shape: int, dtype: torch.dtype = BF16) -> torch.Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(3)).to(dtype)


# A sum of 4 096 in 32 parts that are kept in bfloat16 -----------------------------------------------------------------


def in_narrow_parts(func: Any, args: Any, kwargs: Any) -> torch.Tensor:
    parts = args[0].float().unflatten(-1, (32, -1)).sum(-1).to(args[0].dtype)
    total = torch.zeros_like(parts[..., 0])
    for part in parts.unbind(-1):
        total = total + part
    return total


def one_by_one(func: Any, args: Any, kwargs: Any) -> torch.Tensor:
    total = torch.zeros(args[0].shape[:-1])
    for term in args[0].float().unbind(-1):
        total = total + term
    return total.to(args[0].dtype)


def in_eight_lanes(func: Any, args: Any, kwargs: Any) -> torch.Tensor:
    total = torch.zeros(*args[0].shape[:-1], 8)
    for terms in args[0].float().unflatten(-1, (-1, 8)).unbind(-2):
        total = total + terms
    return total.sum(-1).to(args[0].dtype)


def ascending(func: Any, args: Any, kwargs: Any) -> torch.Tensor:
    return one_by_one(func, [args[0].float().sort(-1).values], kwargs).to(args[0].dtype)


@pytest.mark.parametrize("numbers", [of_normal, positive])
def test_partial_sums_in_16_bits_fail_by_the_policy_and_are_noted_without_it(
    numbers: Any, recorder: Any, narrow_fails: Policy, default_policy: Policy
) -> None:
    x = numbers(8, 4096)
    call, device = recorder.Torch.sum(x, dim=-1), Altered(in_narrow_parts)
    strict, loose = (judged(call, device, policy, x) for policy in (narrow_fails, default_policy))
    assert strict.verdict.outcome == "fail"
    if loose.verdict.outcome == "pass":
        golden = x.double().sum(-1)
        errors = (in_narrow_parts(None, [x], {}).double() - golden).abs()
        scaled = (errors / golden.abs().clamp_min(golden.abs().mean())).max() / 2.0**-8
        assert f"up to {scaled:.4g} unit roundoffs" in strict.verdict.reason
        assert "times what float32 accumulation allows at output.0" in loose.extras[NARROW_SUMS]


@pytest.mark.parametrize("order", [one_by_one, in_eight_lanes, ascending])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    "terms",
    [
        of_normal(8, 4096),
        positive(8, 4096),
        torch.full((8, 4096), 0.1),
        torch.cat([positive(8, 2048), -positive(8, 2048).flip(0)], -1),
        of_normal(8, 4096) * of_normal(8, 4096).exp(),
    ],
    ids=["normal", "positive", "equal", "cancelling", "wide"],
)
def test_float32_sums_in_any_order_pass(
    order: Alter, dtype: torch.dtype, terms: torch.Tensor, recorder: Any, narrow_fails: Policy
) -> None:
    x = terms.to(dtype)
    assert judged(recorder.Torch.sum(x, dim=-1), Altered(order), narrow_fails, x).verdict.outcome == "pass"


# Products, scattered sums, arithmetic ---------------------------------------------------------------------------------


def in_four_products(func: Any, args: Any, kwargs: Any) -> torch.Tensor:
    pairs = zip(args[0].chunk(4, -1), args[1].chunk(4, -1), strict=True)
    return sum((functional.linear(*pair) for pair in pairs), torch.zeros((), dtype=args[0].dtype))


def biased_afterwards(func: Any, args: Any, kwargs: Any) -> torch.Tensor:
    return functional.linear(args[0], args[1]) + args[2]


def without_five(func: Any, args: Any, kwargs: Any) -> torch.Tensor:
    x, dim, index, source = args
    return func(x, dim, index[:-5], source[:-5])


def stochastically(func: Any, args: Any, kwargs: Any) -> torch.Tensor:
    exact = func(*(x.float() for x in args)).view(torch.int32)
    noise = torch.randint(0, 2**16, exact.shape, generator=torch.Generator().manual_seed(0), dtype=torch.int32)
    return ((exact + noise) & ~0xFFFF).view(torch.float32).to(BF16)


def rounded_once(func: Any, args: Any, kwargs: Any) -> torch.Tensor:
    return func(*(x.double() if isinstance(x, torch.Tensor) and x.dtype == BF16 else x for x in args)).to(BF16)


def test_partial_products_in_16_bits_fail(recorder: Any, narrow_fails: Policy) -> None:
    x, weight = positive(64, 2048), positive(32, 2048)
    call = recorder.Functional.linear(x, weight)
    assert judged(call, Altered(in_four_products), narrow_fails, x, weight).verdict.outcome == "fail"
    assert judged(call, Altered(rounded_once), narrow_fails, x, weight).verdict.outcome == "pass"


def test_a_bias_that_is_added_after_rounding_passes(recorder: Any, narrow_fails: Policy) -> None:
    inputs = (of_normal(64, 512), of_normal(128, 512), of_normal(128))
    call = recorder.Functional.linear(*inputs)
    assert judged(call, Altered(biased_afterwards), narrow_fails, *inputs).verdict.outcome == "pass"


def test_lost_additions_fail(recorder: Any, narrow_fails: Policy, default_policy: Policy) -> None:
    index = torch.randint(0, 4, (5000,), generator=torch.Generator().manual_seed(1))
    x, source = torch.zeros(4, 64, dtype=BF16), positive(5000, 64)
    call = recorder.Tensor.index_add(x, 0, index, source)

    def result(alter: Alter, policy: Policy) -> DirectionResult:
        values = {"args.0": x, "args.2": index, "args.3": source}
        setup = ReplayConfig(Altered(alter), policy, TorchFramework())
        return Replay(call, setup, lambda element, path: values[path].clone()).forward()

    assert result(without_five, narrow_fails).verdict.outcome == "fail"
    assert result(without_five, default_policy).verdict.outcome == "pass"
    assert result(rounded_once, narrow_fails).verdict.outcome == "pass"


@pytest.mark.parametrize("api", ["add", "mul"])
def test_stochastic_rounding_fails(api: str, recorder: Any, narrow_fails: Policy, default_policy: Policy) -> None:
    x, y = of_normal(64, 64), of_normal(64, 64).flip(0)
    call = getattr(recorder.Torch, api)(x, y)
    assert judged(call, Altered(stochastically), narrow_fails, x, y).verdict.outcome == "fail"
    noted = judged(call, Altered(stochastically), default_policy, x, y)
    assert noted.verdict.outcome == "pass"
    assert noted.extras[NARROW_SUMS].startswith("within the policy's limits, 1.")
    assert judged(call, CpuDevice(), narrow_fails, x, y).verdict.outcome == "pass"


@pytest.mark.parametrize(
    "device", [each for each in CORRECT_DEVICES if each.touches("linear")], ids=lambda device: device.name
)
def test_no_correct_product_fails_but_one_that_reduces_in_16_bits(
    device: Any, recorder: Any, narrow_fails: Policy
) -> None:
    inputs = (of_normal(32, 768), of_normal(48, 768), of_normal(48))
    result = judged(recorder.Functional.linear(*inputs), VariantDevice(device), narrow_fails, *inputs)
    assert result.verdict.outcome == "pass" or device.name == "reduced reductions"
