"""Normalizations and activations with quantized results, against independent definitions and by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from pytest_msprobe.extensions.npu_operators.quantization.mx_quantization import (
    _npu_swiglu_backward_mx_quant_with_dual_axis,
    npu_swiglu_mx_quant,
)
from pytest_msprobe.extensions.npu_operators.quantization.quantized_activations import (
    npu_dequant_swiglu_quant,
    npu_gelu_quant,
    npu_swiglu_group_quant,
    npu_swiglu_group_quant_backward,
    npu_swiglu_quant,
    swiglu_variant,
)
from pytest_msprobe.extensions.npu_operators.quantization.quantized_layers import (
    _npu_rms_norm_backward_quant,
    npu_rms_norm_dynamic_mx_quant,
    npu_rms_norm_quant_v2,
)
from tests.support.cann.examples import quantized_activations as examples_of_activations
from tests.support.cann.examples import quantized_fusions as examples
from tests.support.cann.operators import quantized_activations, quantized_fusions

FAMILIES = ((examples.EXAMPLES, quantized_fusions), (examples_of_activations.EXAMPLES, quantized_activations))


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


# the numbers of op-plugin's own test of the operator
def test_the_gradient_of_ones_is_that_of_the_operator_s_own_test() -> None:
    x, grad = torch.ones(4, 64, dtype=torch.bfloat16), torch.ones(4, 32, dtype=torch.bfloat16)
    y1, scale1, y2, scale2 = _npu_swiglu_backward_mx_quant_with_dual_axis(x, grad, group_index=torch.tensor([2, 4]))
    for y in (y1, y2):
        assert y.float().tolist() == [[240.0] * 32 + [384.0] * 32] * 4
    assert scale1.tolist() == [[[119, 118]]] * 4
    assert scale2.tolist() == [[[119, 0]] * 32 + [[118, 0]] * 32] * 2


def test_an_rstd_is_promised_where_there_is_a_gradient() -> None:
    x, gamma, scale = torch.tensor([[3.0, 4.0] + [0.0] * 6]), torch.ones(8), torch.tensor([0.01])
    assert npu_rms_norm_quant_v2(x, gamma, scale)[1] is None
    assert npu_rms_norm_dynamic_mx_quant(x, gamma)[2] is None
    y, rstd = npu_rms_norm_quant_v2(x.requires_grad_(), gamma, scale, epsilon=0.0)
    assert rstd is not None
    assert float(rstd) == pytest.approx((25 / 8) ** -0.5)
    assert y[0, :3].tolist() == [127, 127, 0]
    assert not y.requires_grad


def test_a_normalization_s_gradient_is_quantized_behind_it() -> None:
    dy, x, gamma = draw(3, 4), draw(3, 4, seed=1).requires_grad_(), draw(4, seed=2).requires_grad_()
    rstd = torch.rsqrt(x.square().mean(-1) + 1e-6)
    (x * rstd.unsqueeze(-1) * gamma).backward(dy)
    assert x.grad is not None
    scale = torch.tensor([0.03], dtype=torch.float64)
    dx, dgamma = _npu_rms_norm_backward_quant(dy, x.detach(), rstd.detach(), gamma.detach(), scale)
    assert torch.equal(dx.double(), (x.grad / scale).round())
    torch.testing.assert_close(dgamma, gamma.grad)


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        (0, [3 * torch.sigmoid(torch.tensor(3.0)) * 1]),
        (1, [1 * torch.sigmoid(torch.tensor(2.0)) * (2 + 0.5)]),
        (2, [2 * torch.sigmoid(torch.tensor(4.0)) * (1 + 0.5)]),
        (3, [2.0 * 1]),
    ],
)
def test_a_kind_of_swiglu_clamps_what_it_says(mode: int, expected: list[float]) -> None:
    found = swiglu_variant(
        torch.tensor([1.0, 3.0]),
        swiglu_mode=mode,
        activate_left=False,
        clamp_limit=2.0,
        glu_alpha=2.0,
        glu_bias=0.5,
    )
    assert found.tolist() == pytest.approx([float(each) for each in expected], rel=1e-6)


def test_a_static_quantization_has_no_scale() -> None:
    one = torch.ones(1, 2)
    assert npu_swiglu_quant(one, smooth_scales=torch.tensor([100.0]))[1] is None
    assert npu_dequant_swiglu_quant(one)[1] is None
    assert npu_gelu_quant(one, input_scale=torch.ones(1), quant_mode="static")[1] is None


def test_rows_of_no_group_do_not_stop_a_definition() -> None:
    x = draw(4, 8)
    y, scale = npu_dequant_swiglu_quant(
        x, quant_scale=draw(2, 4, seed=1), group_index=torch.tensor([1, 2]), quant_mode=1
    )
    alone, _ = npu_dequant_swiglu_quant(x[:1], quant_scale=draw(2, 4, seed=1)[:1], quant_mode=1)
    assert torch.equal(y[:1], alone)
    assert scale is not None
    assert scale.shape == (4,)


def test_a_small_block_counts_as_one_of_the_least_magnitude() -> None:
    x = torch.zeros(1, 512)
    _, scales, origin = npu_swiglu_group_quant(x, dst_type=292)
    assert scales is not None
    assert scales.tolist() == [[pytest.approx(1e-4 / 448)] * 2]
    assert origin is None
    _, rounded, _ = npu_swiglu_group_quant(x, dst_type=292, round_scale=True)
    assert rounded is not None
    assert rounded.tolist() == [[2.0**-22] * 2]


@pytest.mark.parametrize("limit", [0.0, 0.6])
def test_the_gradient_of_the_weighted_activation_is_that_of_finite_differences(limit: float) -> None:
    x, weight, grad = draw(3, 8).requires_grad_(), draw(3, 1, seed=1).requires_grad_(), draw(3, 4, seed=2)

    def forward(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        a, b = x.chunk(2, -1)
        a, b = (a.clamp(max=limit), b.clamp(-limit, limit)) if limit else (a, b)
        return a * torch.sigmoid(a) * b * weight

    assert torch.autograd.gradcheck(forward, (x, weight))
    forward(x, weight).backward(grad)
    origin = forward(x, torch.ones(3, 1)).detach()
    found = npu_swiglu_group_quant_backward(
        grad, x.detach(), weight=weight.detach(), y_origin=origin, clamp_limit=limit
    )
    for one, other in zip(found, (x.grad, weight.grad), strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: npu_swiglu_group_quant(torch.ones(1, 4), quant_mode=5), "quant_mode"),
        (lambda: npu_swiglu_mx_quant(torch.ones(1, 8), group_mode=1), "group_mode"),
        (lambda: npu_dequant_swiglu_quant(torch.ones(1, 8), round_mode=1), "round_mode"),
        (lambda: npu_gelu_quant(torch.ones(1, 8), dst_type=296), "dst_type 296"),
    ],
)
def test_what_is_not_defined_is_named(call: Callable[[], object], named: str) -> None:
    with pytest.raises(NotImplementedError, match=f"no golden definition with {named}"):
        call()
