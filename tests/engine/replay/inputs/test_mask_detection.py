"""Masked scores are drawn as such, so that what happens to the scores can be seen."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from msprobe_hooks.dump.schema import TensorElement, tensors_of
from pytest_msprobe.engine.replay.inputs.random_tensors import random_tensor
from pytest_msprobe.engine.replay.inputs.recorded_statistics import mask_of
from tests.support.dumps.recorder import Recorder

LOWEST = torch.finfo(torch.float32).min
FILLS = [LOWEST, -1e9, -1e4, -65504.0, -LOWEST, 1e9, 1e4]


def recorded(values: torch.Tensor) -> TensorElement:
    [element] = tensors_of(Recorder().Tensor.neg(values).forward.args)
    return element


def scores(fill: float, share: float = 0.5, *shape: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    values = torch.randn(shape or (4, 16, 32), generator=generator)
    return values.masked_fill(torch.rand(values.shape, generator=generator) < share, fill)


@pytest.mark.parametrize("fill", FILLS)
def test_a_share_is_at_the_fill_value_and_the_rest_in_an_ordinary_range(fill: float) -> None:
    masked = scores(fill)
    drawn = random_tensor(recorded(masked), seed=3)
    assert (drawn.min(), drawn.max()) == (masked.min(), masked.max())
    assert (drawn == fill).float().mean() == pytest.approx(0.5, abs=0.05)
    assert drawn[drawn != fill].abs().max() < 3 * masked[masked != fill].abs().max()


@pytest.mark.parametrize("share", [0.02, 0.1, 0.9])
def test_the_share_is_read_off_mean_and_norm(share: float) -> None:
    drawn = random_tensor(recorded(scores(-1e9, share)), seed=3)
    assert (drawn == -1e9).float().mean() == pytest.approx(share, abs=0.05)


@pytest.mark.parametrize("fill", [-1e9, 1e9])
@pytest.mark.parametrize("shape", [(64, 2), (16, 3), (3, 5, 4)])
def test_each_row_keeps_one_value(fill: float, shape: tuple[int, ...]) -> None:
    element = recorded(scores(fill, 0.9, *shape))
    for seed in range(20):
        assert (random_tensor(element, seed) != fill).any(dim=-1).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_masks_have_every_dtype(dtype: torch.dtype) -> None:
    lowest = torch.finfo(dtype).min
    drawn = random_tensor(recorded(scores(-1.0).to(dtype).masked_fill(scores(-1.0) == -1.0, lowest)), seed=0)
    assert 0.3 < (drawn == lowest).double().mean() < 0.7


@pytest.mark.parametrize(
    "values",
    [
        torch.linspace(-1e4, 1, 1000),
        torch.cat([torch.full((500,), -1e4), torch.full((500,), -5e3), torch.ones(10)]),
        torch.randn(1000),
        torch.tensor([-1e9, 1.0]),
    ],
    ids=["even", "something in between", "no gap", "two values"],
)
def test_what_is_no_mask_is_not_taken_for_one(values: torch.Tensor) -> None:
    low, high = values.aminmax()
    assert mask_of(recorded(values), float(low), float(high), values.numel()) is None


@pytest.mark.parametrize("fill", [*FILLS[:4], -math.inf])
def test_softmax_with_a_wrong_temperature_fails_on_masked_scores(
    fill: float, recorder: Any, check: Any, device_that: Any
) -> None:
    def warmer(func: Any, args: Any, kwargs: Any) -> Any:
        return func(args[0] * 1.25, *args[1:], **kwargs)

    call = recorder.Functional.softmax(scores(fill).requires_grad_(), -1)
    for seed in range(3):
        healthy, faulty = check(call, seed=seed), check(call, device=device_that(warmer), seed=seed)
        assert (healthy.forward.outcome, healthy.backward.outcome) == ("pass", "pass")
        assert (faulty.forward.outcome, faulty.backward.outcome) == ("fail", "fail")


@pytest.mark.parametrize("fill", [*FILLS[:4], -math.inf])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_softmax_that_does_not_subtract_the_greatest_score_fails_on_masked_scores(
    fill: float, dtype: torch.dtype, recorder: Any, check: Any, device_that: Any
) -> None:
    def naive(func: Any, args: Any, kwargs: Any) -> Any:
        exponentials = args[0].float().exp()
        return (exponentials / exponentials.sum(args[1], keepdim=True)).to(args[0].dtype)

    call = recorder.Functional.softmax(scores(fill).to(dtype), -1)
    assert check(call).forward.outcome == "pass"
    assert check(call, device=device_that(naive)).forward.outcome == "fail"
