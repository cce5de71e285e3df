"""Layers and their gradients, against definitions of their own, their forwards and numbers worked out by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from pytest_msprobe.extensions.npu_operators.layers import activation, normalization
from pytest_msprobe.extensions.npu_operators.layers.convolution import (
    npu_conv3d_backward,
    npu_convolution,
    npu_convolution_backward,
    npu_convolution_transpose,
    npu_convolution_transpose_backward,
)
from pytest_msprobe.extensions.npu_operators.layers.normalization import (
    npu_add_layer_norm_backward,
    npu_deep_norm_backward,
    npu_group_norm_swish_grad,
    npu_layernorm_grad,
    npu_renorm_backward,
)
from pytest_msprobe.extensions.npu_operators.layers.training import (
    npu_binary_cross_entropy_with_logits_backward,
    npu_cross_entropy_loss,
    npu_cross_entropy_loss_backward,
    npu_softmax_cross_entropy_with_logits,
    npu_softmax_cross_entropy_with_logits_backward,
)


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def leaves(*shapes: Sequence[int]) -> list[Tensor]:
    return [draw(*shape, seed=seed).requires_grad_() for seed, shape in enumerate(shapes)]


def gradients(out: Tensor, inputs: Sequence[Tensor]) -> tuple[Tensor, tuple[Tensor, ...]]:
    """A gradient that arrives, and those that torch finds for it."""
    grad = draw(*out.shape, seed=9)
    return grad, torch.autograd.grad(out, list(inputs), grad)


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_the_gradient_of_gelu_is_that_of_its_forward(approximate: str) -> None:
    (x,) = leaves((3, 4))
    grad, (wanted,) = gradients(activation.npu_gelu(x, approximate=approximate), [x])
    torch.testing.assert_close(activation.npu_gelu_backward(grad, x, approximate=approximate), wanted)


@pytest.mark.parametrize("left", [False, True])
def test_the_gradient_of_geglu_is_that_of_its_forward(left: bool) -> None:
    (x,) = leaves((3, 4))
    out, gelu = activation.npu_geglu(x, -1, 0, left)
    grad, (wanted,) = gradients(out, [x])
    torch.testing.assert_close(activation.npu_geglu_grad(grad, x, gelu, -1, 0, left), wanted)


def test_gradients_of_silu_and_mish_are_those_of_their_forwards() -> None:
    (x,) = leaves((3, 4))
    grad, (wanted,) = gradients(F.silu(x), [x])
    torch.testing.assert_close(activation.npu_silu_backward(grad, x, F.silu(x)), wanted)
    grad, (wanted,) = gradients(F.mish(x), [x])
    torch.testing.assert_close(activation.npu_mish_backward(grad, x), wanted)


def test_gemma_s_norm_multiplies_by_one_more() -> None:
    y, rstd = normalization.npu_gemma_rms_norm(torch.tensor([[3.0, 4.0]]).double(), torch.tensor([0.0, 1.0]), 0.0)
    torch.testing.assert_close(y, torch.tensor([[3.0, 8.0]]).double() / math.sqrt(12.5))
    torch.testing.assert_close(rstd, torch.tensor([[1 / math.sqrt(12.5)]]).double())


def test_the_norm_in_place_leaves_the_sum_in_its_second_argument() -> None:
    x1, x2, gamma = draw(2, 3), draw(2, 3, seed=1), torch.ones(3).double()
    total = x1 + x2
    y, rstd, _ = normalization.npu_add_rms_norm(x1, x2, gamma)
    found = normalization.npu_add_rms_norm_v2(x1, x2, gamma)
    torch.testing.assert_close((x1, x2, found), (y, total, rstd))


def test_statistics_of_a_layer_norm_over_two_dimensions_have_one_of_size_one() -> None:
    y, mean, rstd, x = normalization.npu_add_layer_norm(draw(5, 2, 3), draw(5, 2, 3), draw(2, 3), draw(2, 3))
    assert y.shape == (5, 2, 3)
    assert mean.shape == rstd.shape == (5, 1)
    assert x is None


def test_gradients_of_layer_norms_are_those_of_their_forwards() -> None:
    x1, x2, gamma, beta = leaves((5, 2, 3), (5, 2, 3), (2, 3), (2, 3))
    y, mean, rstd, x = normalization.npu_add_layer_norm(x1, x2, gamma, beta, 1e-5, True)
    assert x is not None
    grad, of_sum = draw(*y.shape, seed=7), draw(*y.shape, seed=8)
    wanted = torch.autograd.grad((y, x), (x1, x2, gamma, beta), (grad, of_sum), retain_graph=True)
    torch.testing.assert_close(npu_add_layer_norm_backward(grad, x1, x2, rstd, mean, gamma, of_sum), wanted)
    grad, wanted = gradients(y, [x1, gamma, beta])
    torch.testing.assert_close(npu_layernorm_grad(grad, x, [2, 3], mean, rstd, gamma, beta), wanted)


def test_the_gradients_of_deep_norm_are_those_of_its_forward() -> None:
    x, gx, beta, gamma = leaves((5, 6), (5, 6), (6,), (6,))
    mean, rstd, y = normalization.npu_deep_norm(x, gx, beta, gamma, 0.7)
    grad, wanted = gradients(y, [x, gx, beta, gamma])
    torch.testing.assert_close(npu_deep_norm_backward(grad, x, gx, gamma, mean, rstd, 0.7), wanted)


def test_the_gradients_of_group_norm_with_swish_are_those_of_its_forward() -> None:
    x, weight, bias = leaves((2, 6, 5), (6,), (6,))
    y, mean, rstd = normalization.npu_group_norm_swish(x, 3, weight, bias, swish_scale=0.5)
    grad, wanted = gradients(y, [x, weight, bias])
    found = npu_group_norm_swish_grad(grad, x, 3, weight, bias, mean, rstd, [True, True, True], 0.5)
    torch.testing.assert_close(found, wanted)


def test_slices_below_the_largest_norm_get_the_gradient_as_it_is() -> None:
    x, grad = torch.tensor([[3.0, 4.0], [0.3, 0.4]]).double(), draw(2, 2)
    found = npu_renorm_backward(grad, x, 2.0, 0, 1.0)
    torch.testing.assert_close(found[1], grad[1])
    assert abs(float(found[0] @ x[0])) < 1e-6


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_the_gradient_of_cross_entropy_is_that_of_its_forward(reduction: str) -> None:
    (logits,) = leaves((4, 5))
    target, weight = torch.tensor([1, 3, 0, 3]), draw(5, seed=3).abs()
    arguments: dict[str, Any] = {"reduction": reduction, "ignore_index": 0, "label_smoothing": 0.1}
    loss, log_prob, _, _ = npu_cross_entropy_loss(logits, target, weight, **arguments)
    grad, (wanted,) = gradients(loss, [logits])
    torch.testing.assert_close(npu_cross_entropy_loss_backward(grad, log_prob, target, weight, **arguments), wanted)


def test_a_z_loss_has_no_golden_gradient() -> None:
    with pytest.raises(NotImplementedError, match="lse_square_scale_for_zloss"):
        npu_cross_entropy_loss_backward(draw(1), draw(2, 3), torch.tensor([0, 1]), lse_square_scale_for_zloss=0.1)


def test_gradients_of_losses_of_distributions_are_those_of_their_forwards() -> None:
    (logits,) = leaves((4, 5))
    labels = torch.softmax(draw(4, 5, seed=3), -1)
    grad, (wanted,) = gradients(npu_softmax_cross_entropy_with_logits(logits, labels), [logits])
    torch.testing.assert_close(npu_softmax_cross_entropy_with_logits_backward(grad, logits, labels), wanted)
    loss = F.binary_cross_entropy_with_logits(logits, labels, labels + 1, pos_weight=labels[0] * 3)
    grad, (wanted,) = gradients(loss, [logits])
    found = npu_binary_cross_entropy_with_logits_backward(grad, logits, labels, labels + 1, labels[0] * 3, 1)
    torch.testing.assert_close(found, wanted)


def test_the_gradients_of_convolutions_are_those_of_their_forwards() -> None:
    x, weight, bias = leaves((2, 4, 5, 4), (6, 2, 3, 2), (6,))
    geometry = ([2, 1], [1, 0], [1, 2], 2)
    grad, wanted = gradients(npu_convolution(x, weight, bias, *geometry), [x, weight, bias])
    torch.testing.assert_close(npu_convolution_backward(x, grad, weight, *geometry, [True] * 3), wanted)
    assert npu_conv3d_backward(x, grad, weight, *geometry, [False, True, False])[::2] == (None, None)


def test_the_gradients_of_transposed_convolutions_are_those_of_their_forwards() -> None:
    x, weight, bias = leaves((2, 4, 3, 3), (4, 3, 2, 3), (6,))
    geometry = ([1, 0], [1, 0], [2, 1], [1, 1], 2)
    grad, wanted = gradients(npu_convolution_transpose(x, weight, bias, *geometry), [x, weight, bias])
    torch.testing.assert_close(npu_convolution_transpose_backward(x, grad, weight, *geometry, [True] * 3), wanted)
