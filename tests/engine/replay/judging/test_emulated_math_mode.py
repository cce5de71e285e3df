from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from pytest_msprobe.devices.math_modes import ReducedPrecision
from pytest_msprobe.engine.replay.judging.emulated_math_mode import RoundedProducts, rounded

TF32 = ReducedPrecision(matmul="tf32", conv="tf32")
NORMAL = st.floats(2.0**-100, 2.0**100, width=32) | st.floats(-(2.0**100), -(2.0**-100), width=32)


def tf32(values: torch.Tensor) -> torch.Tensor:
    return rounded(values, 10)


def exactly(value: float, bits: int, *, truncate: bool) -> float:
    """Return a number rounded by integer arithmetic; Python's round takes the even one of two."""
    unit = Fraction(2) ** (math.frexp(value)[1] - 1 - bits)
    steps = Fraction(value) / unit
    return float((math.trunc(steps) if truncate else round(steps)) * unit)


@given(value=NORMAL, bits=st.sampled_from([7, 10, 11]), truncate=st.booleans())
def test_values_are_rounded_as_in_integer_arithmetic(value: float, bits: int, truncate: bool) -> None:
    assert rounded(torch.tensor([value]), bits, truncate=truncate).item() == exactly(value, bits, truncate=truncate)


def test_hf32_is_what_msprobe_rounds_inputs_of_convolutions_to() -> None:
    values = torch.randn(5000, generator=torch.Generator().manual_seed(0))
    whole = values.view(torch.int32)
    assert torch.equal(rounded(values, 11), ((whole >> 11) + 1 >> 1 << 12).view(torch.float32))


def test_what_is_not_finite_stays() -> None:
    values = torch.tensor([math.inf, -math.inf, math.nan, torch.finfo(torch.float32).max])
    found = rounded(values, 10, truncate=True)
    assert found[:2].tolist() == [math.inf, -math.inf]
    assert found[2].isnan()
    assert found[3].isfinite()


def made(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def computed(function: Callable[..., Any], *tensors: torch.Tensor, modes: ReducedPrecision = TF32, **more: Any) -> Any:
    products = RoundedProducts(modes, recurrent=False, **more)
    return products.call(function, tensors, {}, record=""), tuple(products.used)


@pytest.mark.parametrize(
    ("function", "tensors", "factors"),
    [
        (F.linear, (made(3, 4), made(5, 4), made(5)), (0, 1)),
        (torch.matmul, (made(2, 3, 4), made(4, 5)), (0, 1)),
        (torch.matmul, (made(3, 4), made(4)), (0, 1)),
        (torch.Tensor.__matmul__, (made(3, 4), made(4, 5)), (0, 1)),
        (torch.bmm, (made(2, 3, 4), made(2, 4, 5)), (0, 1)),
        (torch.addmm, (made(3, 5), made(3, 4), made(4, 5)), (1, 2)),
        (torch.ops.aten.addmm.default, (made(3, 5), made(3, 4), made(4, 5)), (1, 2)),
        (torch.baddbmm, (made(2, 3, 5), made(2, 3, 4), made(2, 4, 5)), (1, 2)),
        (lambda a, b: torch.einsum("bij,jk->bik", a, b), (made(2, 3, 4), made(4, 5)), (0, 1)),
        (F.conv1d, (made(1, 2, 9), made(3, 2, 3), made(3)), (0, 1)),
        (F.conv2d, (made(1, 2, 9, 9), made(3, 2, 3, 3), made(3)), (0, 1)),
        (F.conv_transpose2d, (made(1, 2, 5, 5), made(2, 3, 3, 3)), (0, 1)),
    ],
)
def test_the_factors_are_rounded_and_nothing_else_whatever_the_call_is_named(
    function: Callable[..., torch.Tensor], tensors: tuple[torch.Tensor, ...], factors: tuple[int, ...]
) -> None:
    found, used = computed(function, *tensors)
    right = function(*((tf32(tensor) if i in factors else tensor).double() for i, tensor in enumerate(tensors)))
    unrounded = function(*(tensor.double() for tensor in tensors))
    assert used == ("tf32",)
    assert torch.allclose(found.double(), right, rtol=1e-5, atol=1e-6)
    assert not torch.allclose(found.double(), unrounded, rtol=1e-5, atol=1e-6)


def test_a_gradient_is_a_product_of_rounded_factors() -> None:
    x, weight, arriving = made(3, 4).requires_grad_(), made(5, 4), made(3, 5)

    def gradient(x: torch.Tensor) -> torch.Tensor:
        return torch.autograd.grad(F.linear(x, weight), x, arriving)[0]

    assert torch.equal(computed(gradient, x)[0], tf32(arriving) @ tf32(weight))


def test_the_gradient_of_a_convolutions_bias_is_a_sum_and_stays() -> None:
    x, weight, bias = made(2, 3, 8, 8), made(4, 3, 3, 3).requires_grad_(), made(4).requires_grad_()
    arriving = made(2, 4, 6, 6)

    def gradients() -> Any:
        return torch.autograd.grad(F.conv2d(x, weight, bias), (weight, bias), arriving)

    (of_weight, of_bias), _ = computed(gradients)
    assert torch.allclose(of_bias.double(), arriving.double().sum((0, 2, 3)), rtol=1e-6)
    right = torch.nn.grad.conv2d_weight(tf32(x).double(), weight.shape, tf32(arriving).double())  # type: ignore[no-untyped-call]
    assert torch.allclose(of_weight.double(), right, rtol=1e-5, atol=1e-5)


def test_the_products_inside_of_attention_are_rounded() -> None:
    query, key, value = made(1, 2, 6, 8), made(1, 2, 6, 8), made(1, 2, 6, 8)
    found, used = computed(F.scaled_dot_product_attention, query, key, value)
    scale = math.sqrt(math.sqrt(1 / 8))
    scores = tf32(query * scale).double() @ tf32(key * scale).double().mT
    right = tf32(scores.softmax(-1).float()).double() @ tf32(value).double()
    assert used == ("tf32",)
    assert torch.allclose(found.double(), right, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("recurrent", "used"), [(True, ("hf32",)), (False, ("tf32",))])
def test_the_products_of_a_recurrent_layer_have_a_format_of_their_own(recurrent: bool, used: tuple[str, ...]) -> None:
    layer = torch.nn.LSTM(4, 5)
    products = RoundedProducts(ReducedPrecision(matmul="tf32", rnn="hf32"), recurrent=recurrent)
    products.call(layer, (made(3, 2, 4),), {}, record="")
    assert tuple(products.used) == used


def test_a_mode_that_concerns_no_kernel_of_a_call_is_not_used() -> None:
    assert computed(torch.matmul, made(3, 4), made(4, 5), modes=ReducedPrecision(conv="tf32"))[1] == ()
    assert computed(torch.matmul, made(3, 4).double(), made(4, 5).double())[1] == ()
    assert computed(torch.add, made(3, 4), made(3, 4))[1] == ()


def test_reduced_reductions_round_the_sums_of_parts() -> None:
    left, right = made(3, 64).half(), made(64, 5).half()
    found, used = computed(torch.mm, left, right, modes=ReducedPrecision(fp16_reduction=True))
    total = torch.zeros(3, 5, dtype=torch.float16)
    for a, b in zip(left.split(16, 1), right.split(16, 0), strict=True):
        total = (total.double() + (a.double() @ b.double()).half().double()).half()
    assert used == ("fp16_reduction",)
    assert torch.equal(found, total)


def test_onednn_is_as_it_was_afterwards() -> None:
    before = torch._C._get_mkldnn_enabled()
    with pytest.raises(ZeroDivisionError):
        computed(lambda: 1 // 0)
    assert torch._C._get_mkldnn_enabled() == before
