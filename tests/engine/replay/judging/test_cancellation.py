from __future__ import annotations

import math

import pytest
import torch

from pytest_msprobe.engine.replay.judging.cancellation import cancelled_gradients, without_rounding


def softmax_gradient(dtype: torch.dtype, arriving: torch.Tensor) -> torch.Tensor:
    x = torch.linspace(-2, 2, 12).reshape(3, 4).to(dtype).requires_grad_()
    (gradient,) = torch.autograd.grad(torch.softmax(x, -1), x, arriving.to(dtype))
    return gradient


def test_softmax_of_equal_gradients_has_none_but_rounding() -> None:
    ones = torch.ones(3, 4)
    found = cancelled_gradients({"x": softmax_gradient(torch.float64, ones)}, [ones])
    assert found == {"x": 1.0}
    target = without_rounding({"x": softmax_gradient(torch.float16, ones)}, found)
    assert not target["x"].any()


def test_what_is_more_than_rounding_stays() -> None:
    found = {"x": 1.0}
    wrong = torch.tensor([1e-7, 1e-3], dtype=torch.float32)
    assert without_rounding({"x": wrong}, found)["x"].tolist() == [0.0, wrong[1].item()]


def test_small_gradients_that_are_known_are_kept() -> None:
    ones = torch.ones(4)
    small = torch.full((4,), 1e-9, dtype=torch.float64)
    assert cancelled_gradients({"x": small}, [ones]) == {}
    assert without_rounding({"x": small}, {}) == {"x": small}


def test_empty_and_whole_number_gradients_are_left_alone() -> None:
    assert cancelled_gradients({"x": torch.empty(0), "y": torch.zeros(2, dtype=torch.int64)}, [torch.ones(2)]) == {}


@pytest.mark.parametrize("dtype", [torch.float8_e5m2, torch.bfloat16, torch.float32, torch.float64, torch.complex64])
def test_the_scale_of_rounding_is_the_greatest_magnitude_that_arrives(dtype: torch.dtype) -> None:
    zero = {"x": torch.zeros(3, dtype=torch.float64)}
    assert cancelled_gradients(zero, [torch.tensor([0.5, -2.0]).to(dtype), torch.tensor([1.0]).to(dtype)]) == {"x": 2.0}


def test_a_gradient_with_a_nan_is_no_rounding() -> None:
    assert cancelled_gradients({"x": torch.tensor([0.0, math.nan, 0.0])}, [torch.ones(3)]) == {}
