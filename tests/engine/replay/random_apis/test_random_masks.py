"""Masks and slopes of a healthy torch and their gradients pass at every size, and planted faults are found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.support.dumps.random_results import FLOATS, SEEDS, SIZES, draw, outcome, property_of

MASKS: list[tuple[str, Callable[..., Any], tuple[Any, ...], tuple[int, ...]]] = [
    ("dropout", F.dropout, (0.3,), ()),
    ("dropout", torch.dropout, (0.9, True), ()),
    ("native_dropout", torch.native_dropout, (0.5, True), ()),
    ("alpha_dropout", F.alpha_dropout, (0.3, True), ()),
    ("dropout1d", F.dropout1d, (0.4,), (4, 3)),
    ("dropout2d", F.dropout2d, (0.4,), (4, 3, 1)),
    ("dropout3d", F.dropout3d, (0.4,), (4, 1, 1, 3)),
    ("feature_dropout", torch.feature_dropout, (0.4, True), (4, 3)),
    ("feature_alpha_dropout", F.feature_alpha_dropout, (0.4, True), (4, 3)),
    ("rrelu", F.rrelu, (0.1, 0.4, True), ()),
]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("api", "function", "rest", "shape"), MASKS)
def test_healthy_dropout_and_its_gradient_pass(
    api: str, function: Callable[..., Any], rest: tuple[Any, ...], shape: tuple[int, ...], size: int
) -> None:
    for seed in SEEDS:
        dtype = torch.float32 if api == "rrelu" else FLOATS[seed % 3]
        x = draw(-(-size // 4) if shape else size, *shape, dtype=dtype, seed=seed)
        torch.manual_seed(seed + 1000)  # not the stream of the inputs
        leaf = x.clone().requires_grad_()
        y = function(leaf, *rest)
        first = y[0] if isinstance(y, tuple) else y
        grad = draw(*first.shape, dtype=dtype, seed=seed + 100)
        first.backward(grad)
        judged = property_of(api, x, *rest)
        forward = judged.check_forward(y)
        assert forward.outcome == "pass", forward
        backward = judged.check_backward(y, [grad], [leaf.grad])
        assert backward is not None
        assert backward.outcome == "pass", backward


def masked(x: Tensor, p: float, scale: float, seed: int = 77) -> Tensor:
    keep = torch.rand(x.shape, generator=torch.Generator().manual_seed(seed)) >= p
    return (x * keep * scale).to(x.dtype)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("off", [-0.1, 0.1])
def test_dropout_with_a_share_off_by_a_tenth_is_found(dtype: torch.dtype, off: float) -> None:
    x = draw(10_000, dtype=dtype)
    assert outcome("dropout", masked(x, 0.5 + off, 2.0), x, 0.5) == "fail"


@pytest.mark.parametrize("n", [20, 10_000])
def test_dropout_with_a_wrong_scale_is_found(n: int) -> None:
    x = draw(n)
    assert outcome("dropout", masked(x, 0.3, 1.0), x, 0.3) == "fail"


@pytest.mark.parametrize("dtype", FLOATS)
def test_one_wrong_value_among_twenty_kept_is_found(dtype: torch.dtype) -> None:
    x = draw(20, dtype=dtype)
    y = masked(x, 0.5, 2.0)
    y[int(y.nonzero()[0])] *= 1.1
    assert outcome("dropout", y, x, 0.5) == "fail"


def test_a_nan_in_dropout_is_found() -> None:
    x = draw(20)
    y = masked(x, 0.5, 2.0)
    y[3] = torch.nan
    assert outcome("dropout", y, x, 0.5) == "fail"


@pytest.mark.parametrize("keep", [0.0, 2.0])
def test_dropout_that_keeps_or_drops_everything_is_found(keep: float) -> None:
    x = draw(100)
    assert outcome("dropout", x * keep, x, 0.5) == "fail"


def test_dropout_of_the_first_half_is_found() -> None:
    x = draw(200)
    y = 2 * x
    y[:100] = 0
    verdict = property_of("dropout", x, 0.5).check_forward(y)
    assert verdict.outcome == "fail"
    assert verdict.reason == "the share of unlike elements at a distance of 100 is 1, but 0.5 is expected"


def test_dropout_of_everything_must_be_zero() -> None:
    x = draw(20)
    assert outcome("dropout", torch.zeros(20), x, 1.0) == "pass"
    assert outcome("dropout", x, x, 1.0) == "fail"


def test_zeros_of_the_input_do_not_count_as_dropped() -> None:
    x = draw(1000)
    x[::2] = 0
    assert outcome("dropout", masked(x, 0.1, 1 / 0.9), x, 0.1) == "pass"


def test_infinite_and_overflowing_inputs_are_no_faults() -> None:
    x = torch.tensor([torch.inf, torch.nan, 60000.0, -60000.0], dtype=torch.float16)
    torch.manual_seed(0)
    assert outcome("dropout", F.dropout(x, 0.5), x, 0.5) == "pass"


def test_a_result_of_another_shape_or_dtype_is_found() -> None:
    x = draw(4, 5)
    assert outcome("dropout", masked(x, 0.5, 2.0).T, x, 0.5) == "fail"
    assert outcome("dropout", masked(x, 0.5, 2.0).double(), x, 0.5) == "fail"


@pytest.mark.parametrize("api", ["dropout1d", "dropout2d", "dropout3d", "feature_dropout"])
def test_a_channel_dropped_in_part_is_found(api: str) -> None:
    shape = {
        "dropout1d": (5, 4, 6),
        "dropout2d": (5, 4, 2, 3),
        "dropout3d": (5, 4, 1, 2, 3),
        "feature_dropout": (5, 4, 6),
    }
    x = draw(*shape[api])
    y = 2 * x
    y[0] = 0
    rest = (0.5, True)
    y.reshape(20, 6)[7, 2] = 0
    verdict = property_of(api, x, *rest).check_forward(y)
    assert verdict.reason == "1 channels are dropped in part"


def test_without_a_batch_the_first_dimension_is_the_channel() -> None:
    x = draw(6, 5)
    y = 2 * x
    y[::2] = 0
    assert outcome("dropout1d", y, x) == "pass"
    y[1, 0] = 0
    assert outcome("dropout1d", y, x) == "fail"


def test_alpha_dropout_with_plain_dropouts_values_is_found() -> None:
    x = draw(20)
    assert outcome("alpha_dropout", masked(x, 0.5, 2.0), x, 0.5, True) == "fail"


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_a_mask_that_repeats_along_any_dimension_is_found(dim: int) -> None:
    x = torch.randn(24, 20, 22)
    row = masked(torch.ones_like(x).narrow(dim, 0, 1), 0.1, 1 / 0.9)
    assert "unlike elements" in property_of("dropout", x, 0.1).check_forward(x * row).reason


def test_a_returned_mask_that_contradicts_the_result_is_found() -> None:
    x = draw(50)
    torch.manual_seed(0)
    y, mask = torch.native_dropout(x, 0.5, True)
    mask[4] = ~mask[4]
    verdict = property_of("native_dropout", x, 0.5, True).check_forward((y, mask))
    assert verdict.reason == "the returned mask contradicts 1 elements"


@pytest.mark.parametrize("n", [20, 10_000])
@pytest.mark.parametrize("api", ["dropout", "alpha_dropout"])
def test_a_gradient_through_another_mask_is_found(api: str, n: int) -> None:
    x, grad = draw(n), draw(n, seed=1)
    torch.manual_seed(0)
    y = getattr(F, api)(x, 0.5, True)
    leaf = x.clone().requires_grad_()
    getattr(F, api)(leaf, 0.5, True).backward(grad)
    verdict = property_of(api, x, 0.5, True).check_backward(y, [grad], [leaf.grad])
    assert verdict is not None
    assert verdict.outcome == "fail"


def test_a_gradient_without_the_scale_is_found() -> None:
    x, grad = draw(20), draw(20, seed=1)
    y = masked(x, 0.5, 2.0)
    verdict = property_of("dropout", x, 0.5).check_backward(y, [grad], [grad * (y != 0)])
    assert verdict is not None
    assert verdict.outcome == "fail"


def test_a_channels_gradient_follows_the_channel_even_where_the_input_is_zero() -> None:
    x, grad = draw(4, 3, 5), draw(4, 3, 5, seed=1)
    x[..., 0] = 0
    y = 2 * x
    y[::2] = 0
    right = 2 * grad
    right[::2] = 0
    judged = property_of("dropout1d", x, 0.5)
    verdict = judged.check_backward(y, [grad], [right])
    assert verdict is not None
    assert verdict.outcome == "pass"
    right[0, 0, 0] = 2 * grad[0, 0, 0]
    verdict = judged.check_backward(y, [grad], [right])
    assert verdict is not None
    assert verdict.outcome == "fail"


def test_rrelu_slopes_out_of_range_or_stuck_are_found() -> None:
    x = draw(200)
    leaky = torch.where(x < 0, x * 0.5, x)
    assert outcome("rrelu", leaky, x, 0.1, 0.4, True) == "fail"
    stuck = torch.where(x < 0, x * 0.25, x)
    assert outcome("rrelu", stuck, x, 0.1, 0.4, True) == "fail"
    torch.manual_seed(0)
    changed = F.rrelu(x, 0.1, 0.4, True)
    changed[int((x > 0).nonzero()[0])] *= 1.5
    assert outcome("rrelu", changed, x, 0.1, 0.4, True) == "fail"


def test_a_gradient_with_other_slopes_is_found() -> None:
    x, grad = draw(20), draw(20, seed=1)
    torch.manual_seed(0)
    y = F.rrelu(x, 0.1, 0.4, True)
    wrong = torch.where(x < 0, grad * 0.25, grad)
    verdict = property_of("rrelu", x, 0.1, 0.4, True).check_backward(y, [grad], [wrong])
    assert verdict is not None
    assert verdict.outcome == "fail"
