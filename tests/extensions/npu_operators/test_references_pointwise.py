"""Activations, normalizations, rotary embedding, masked softmax, losses and layout against other computations."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from pytest_msprobe.extensions.npu_operators.layers.activation import (
    npu_fast_gelu,
    npu_fast_gelu_backward,
    npu_geglu,
    npu_gelu,
    npu_mish,
    npu_scaled_masked_softmax,
    npu_scaled_masked_softmax_backward,
    npu_silu,
    npu_silu_,
    npu_swiglu,
    npu_swiglu_backward,
)
from pytest_msprobe.extensions.npu_operators.layers.normalization import (
    npu_add_rms_norm,
    npu_deep_norm,
    npu_group_norm_silu,
    npu_layer_norm_eval,
    npu_rms_norm,
    npu_rms_norm_backward,
)
from pytest_msprobe.extensions.npu_operators.layers.rotary import npu_rotary_mul, npu_rotary_mul_backward
from pytest_msprobe.extensions.npu_operators.layers.training import (
    npu_cross_entropy_loss,
    npu_softmax_cross_entropy_with_logits,
)
from pytest_msprobe.extensions.npu_operators.tensors.layout import (
    npu_broadcast,
    npu_confusion_transpose,
    npu_confusion_transpose_backward,
    npu_dtype_cast,
    npu_max,
    npu_min,
    npu_one_hot,
    npu_slice,
    npu_sort_v2,
    npu_transpose,
    one_,
)

POINTS = [-800.0, -30.0, -3.5, -1.0, -1e-3, 0.0, 1e-3, 0.7, 2.0, 30.0, 800.0]


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def grads(out: Tensor, grad: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
    return torch.autograd.grad(out, inputs, grad)


def close(actual: Tensor, expected: object, rtol: float = 1e-12, atol: float = 1e-13) -> None:
    np.testing.assert_allclose(actual.detach().numpy(), np.asarray(expected), rtol=rtol, atol=atol)


def test_fast_gelu_is_the_piecewise_formula_of_the_operator() -> None:
    with mpmath.workdps(60):
        expected = [
            float(
                mpmath.mpf(x)
                * mpmath.exp(mpmath.mpf("0.851") * (x - abs(x)))
                / (1 + mpmath.exp(mpmath.mpf("-1.702") * abs(x)))
            )
            for x in POINTS
        ]
    close(npu_fast_gelu(torch.tensor(POINTS, dtype=torch.float64)), expected, atol=1e-300)


def test_fast_gelu_backward_is_the_derivative_of_the_formula() -> None:
    def formula(x: mpmath.mpf) -> mpmath.mpf:
        return x / (1 + mpmath.exp(-mpmath.mpf("1.702") * x))

    with mpmath.workdps(60):
        expected = [2.5 * float(mpmath.diff(formula, x)) for x in POINTS[1:-1]]
    x = torch.tensor(POINTS[1:-1], dtype=torch.float64)
    close(npu_fast_gelu_backward(torch.full_like(x, 2.5), x), expected)


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu_follows_its_approximation(approximate: str) -> None:
    x = np.array([-4.0, -0.5, 0.0, 0.3, 5.0])
    if approximate == "none":
        expected = [float(v * mpmath.ncdf(v)) for v in x]
    else:
        expected = 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    close(npu_gelu(torch.from_numpy(x), approximate=approximate), expected)


@pytest.mark.parametrize("activate_left", [False, True])
def test_geglu_multiplies_one_half_with_the_gelu_of_the_other(activate_left: bool) -> None:
    x = draw(3, 8)
    left, right = x.numpy()[:, :4], x.numpy()[:, 4:]
    linear, activated = (right, left) if activate_left else (left, right)
    gelu = 0.5 * activated * (1 + np.tanh(np.sqrt(2 / np.pi) * (activated + 0.044715 * activated**3)))
    out, saved = npu_geglu(x, activate_left=activate_left)
    close(out, linear * gelu)
    close(saved, gelu)


def test_mish_and_silu_are_their_formulas() -> None:
    x = np.linspace(-6, 6, 25)
    close(npu_mish(torch.from_numpy(x)), x * np.tanh(np.log1p(np.exp(x))))
    close(npu_silu(torch.from_numpy(x)), x / (1 + np.exp(-x)))


def test_silu_in_place_writes_its_input() -> None:
    x = draw(5)
    expected = x.numpy() / (1 + np.exp(-x.numpy()))
    assert npu_silu_(x) is x
    close(x, expected)


@pytest.mark.parametrize("dim", [-1, 0, 1])
def test_swiglu_splits_along_its_dimension(dim: int) -> None:
    x = draw(4, 6, 2)
    a, b = np.split(x.numpy(), 2, axis=dim)
    close(npu_swiglu(x, dim), a / (1 + np.exp(-a)) * b)


def test_swiglu_keeps_the_precision_it_is_given() -> None:
    x = draw(8, 4)
    a, b = np.split(x.numpy(), 2, axis=-1)
    assert np.abs(npu_swiglu(x).numpy() - a / (1 + np.exp(-a)) * b).max() < 1e-15


@pytest.mark.parametrize("dim", [-1, 0])
def test_swiglu_backward_is_the_gradient_of_silu_times_the_other_half(dim: int) -> None:
    x = draw(4, 6).requires_grad_()
    grad = draw(*npu_swiglu(x, dim).shape, seed=1)
    a, b = x.tensor_split(2, dim)
    (expected,) = grads(a * torch.sigmoid(a) * b, grad, x)
    close(npu_swiglu_backward(grad, x.detach(), dim), expected)


@pytest.mark.parametrize("gamma_shape", [(6,), (5, 6)])
def test_rms_norm_divides_by_the_root_mean_square_of_gammas_dimensions(gamma_shape: tuple[int, ...]) -> None:
    x, gamma = draw(3, 5, 6), draw(*gamma_shape, seed=1)
    axes = tuple(range(-len(gamma_shape), 0))
    rstd = 1 / np.sqrt((x.numpy() ** 2).mean(axis=axes, keepdims=True) + 1e-6)
    out, saved = npu_rms_norm(x, gamma)
    close(out, x.numpy() * rstd * gamma.numpy())
    close(saved, rstd)
    assert saved.shape == (3, *(1 if len(gamma_shape) > 1 else 5,), 1)


def test_rms_norm_uses_its_epsilon() -> None:
    x = torch.zeros(2, 4, dtype=torch.float64)
    close(npu_rms_norm(x, torch.ones(4, dtype=torch.float64))[1], np.full((2, 1), 1e3))
    close(npu_rms_norm(x, torch.ones(4, dtype=torch.float64), 0.25)[1], np.full((2, 1), 2.0))


@pytest.mark.parametrize("gamma_shape", [(6,), (5, 6)])
def test_rms_norm_backward_sums_gammas_gradient_over_all_rows(gamma_shape: tuple[int, ...]) -> None:
    x, gamma = draw(3, 5, 6).requires_grad_(), draw(*gamma_shape, seed=1).requires_grad_()
    grad = draw(3, 5, 6, seed=2)
    expected = grads(F.rms_norm(x, gamma_shape, gamma, 1e-6), grad, x, gamma)
    rstd = npu_rms_norm(x.detach(), gamma.detach())[1]
    actual = npu_rms_norm_backward(grad, x.detach(), gamma.detach(), rstd)
    for got, want in zip(actual, expected, strict=True):
        assert got.shape == want.shape
        close(got, want)


def test_add_rms_norm_returns_norm_statistic_and_sum() -> None:
    x1, x2, gamma = draw(4, 6), draw(4, 6, seed=1), draw(6, seed=2)
    y, rstd, x = npu_add_rms_norm(x1, x2, gamma, 0.1)
    close(x, x1.numpy() + x2.numpy())
    close(rstd, 1 / np.sqrt((x.numpy() ** 2).mean(-1, keepdims=True) + 0.1))
    close(y, F.rms_norm(x1 + x2, (6,), gamma, 0.1))


def test_layer_norm_eval_uses_weight_bias_and_eps() -> None:
    x, weight, bias = draw(2, 3, 4), draw(3, 4, seed=1), draw(3, 4, seed=2)
    data = x.numpy()
    centred = data - data.mean((1, 2), keepdims=True)
    expected = centred / np.sqrt((centred**2).mean((1, 2), keepdims=True) + 0.5) * weight.numpy() + bias.numpy()
    close(npu_layer_norm_eval(x, [3, 4], weight, bias, 0.5), expected)


def test_deep_norm_normalizes_the_scaled_sum() -> None:
    x, gx, beta, gamma = draw(3, 2, 4), draw(3, 2, 4, seed=1), draw(2, 4, seed=2), draw(2, 4, seed=3)
    z = 0.3 * x.numpy() + gx.numpy()
    mean = z.mean((1, 2), keepdims=True)
    rstd = 1 / np.sqrt(z.var((1, 2), keepdims=True) + 1e-6)
    out = npu_deep_norm(x, gx, beta, gamma)
    for got, want in zip(out, (mean, rstd, (z - mean) * rstd * gamma.numpy() + beta.numpy()), strict=True):
        close(got, want)


@pytest.mark.parametrize("shape", [(2, 6), (2, 6, 5), (2, 6, 3, 4)])
def test_group_norm_silu_takes_any_number_of_dimensions(shape: tuple[int, ...]) -> None:
    x, weight, bias = draw(*shape), draw(6, seed=1), draw(6, seed=2)
    grouped = x.numpy().reshape(2, 3, -1)
    mean, rstd = grouped.mean(-1), 1 / np.sqrt(grouped.var(-1) + 1e-5)
    normalized = ((grouped - mean[..., None]) * rstd[..., None]).reshape(shape)
    channels = (1, 6) + (1,) * (len(shape) - 2)
    normalized = normalized * weight.numpy().reshape(channels) + bias.numpy().reshape(channels)
    out = npu_group_norm_silu(x, weight, bias, 3)
    close(out[0], normalized / (1 + np.exp(-normalized)))
    close(out[1], mean)
    close(out[2], rstd)


def test_group_norm_silu_goes_without_weight_and_bias() -> None:
    x = draw(2, 4, 3)
    close(npu_group_norm_silu(x, None, None, 2)[0], F.silu(F.group_norm(x, 2)))


@pytest.mark.parametrize("mode", ["half", "interleave"])
def test_rotary_mul_turns_pairs_as_complex_multiplication_does(mode: str) -> None:
    x, angle = draw(2, 3, 5, 8).numpy(), draw(1, 3, 1, 4, seed=1).numpy()
    if mode == "half":
        turned = (x[..., :4] + 1j * x[..., 4:]) * np.exp(1j * angle)
        expected = np.concatenate((turned.real, turned.imag), -1)
        spread = np.concatenate((angle, angle), -1)
    else:
        turned = (x[..., ::2] + 1j * x[..., 1::2]) * np.exp(1j * angle)
        expected = np.stack((turned.real, turned.imag), -1).reshape(x.shape)
        spread = np.repeat(angle, 2, -1)
    r1, r2 = torch.from_numpy(np.cos(spread)), torch.from_numpy(np.sin(spread))
    close(npu_rotary_mul(torch.from_numpy(x), r1, r2, mode), expected)


@pytest.mark.parametrize("mode", ["half", "interleave"])
@pytest.mark.parametrize(
    "r_shape", [(1, 3, 1, 8), (2, 1, 1, 8), (1, 1, 5, 8), (2, 1, 5, 8), (2, 3, 5, 8), (1, 1, 1, 8), (5, 8), (8,)]
)
def test_rotary_mul_backward_sums_over_every_broadcast_layout(r_shape: tuple[int, ...], mode: str) -> None:
    x, grad = draw(2, 3, 5, 8).requires_grad_(), draw(2, 3, 5, 8, seed=3)
    r1, r2 = draw(*r_shape, seed=1).requires_grad_(), draw(*r_shape, seed=2).requires_grad_()
    expected = grads(npu_rotary_mul(x, r1, r2, mode), grad, x, r1, r2)
    actual = npu_rotary_mul_backward(grad, x.detach(), r1.detach(), r2.detach(), mode)
    for got, want in zip(actual, expected, strict=True):
        assert got.shape == want.shape
        close(got, want)


def test_rotary_mul_names_the_modes_it_knows() -> None:
    with pytest.raises(ValueError, match="'quarter' has no golden definition; known are 'half' and 'interleave'"):
        npu_rotary_mul(draw(1, 1, 1, 8), draw(8), draw(8), "quarter")


@pytest.mark.parametrize("fixed", [False, True])
def test_scaled_masked_softmax_hides_by_mask_or_by_triangle(fixed: bool) -> None:
    x = draw(2, 3, 4, 4)
    mask = draw(2, 1, 4, 4, seed=1) > 0.5
    hidden = np.triu(np.ones((4, 4), bool), 1) if fixed else mask.numpy()
    scores = np.where(hidden, -10000.0, x.numpy() * 0.7)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    close(npu_scaled_masked_softmax(x, mask, 0.7, fixed), weights / weights.sum(-1, keepdims=True))


def test_scaled_masked_softmax_is_uniform_where_all_is_masked() -> None:
    mask = torch.zeros(3, 4, dtype=torch.bool)
    mask[1] = True
    close(npu_scaled_masked_softmax(draw(3, 4), mask)[1], [0.25] * 4)


@pytest.mark.parametrize("fixed", [False, True])
def test_scaled_masked_softmax_backward_is_the_gradient(fixed: bool) -> None:
    x, grad = draw(2, 2, 4, 4).requires_grad_(), draw(2, 2, 4, 4, seed=1)
    mask = draw(2, 1, 4, 4, seed=2) > 0.5
    y = npu_scaled_masked_softmax(x, mask, 0.7, fixed)
    (expected,) = grads(y, grad, x)
    close(npu_scaled_masked_softmax_backward(grad, y.detach(), mask, 0.7, fixed), expected)


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_cross_entropy_loss_is_the_negative_log_of_the_targets_probability(reduction: str, smoothing: float) -> None:
    logits, weight = draw(5, 4), draw(4, seed=1).abs()
    target = torch.tensor([0, 3, 1, 2, 1])
    data = logits.numpy()
    log_prob = data - np.log(np.exp(data).sum(-1, keepdims=True))
    kept = target.numpy() != 2
    picked = weight.numpy()[target.numpy()] * kept
    nll = -log_prob[np.arange(5), target.numpy()] * picked
    smooth = -(log_prob * weight.numpy()).sum(-1) * kept / 4
    each = (1 - smoothing) * nll + smoothing * smooth
    expected = {"none": each, "sum": [each.sum()], "mean": [each.sum() / picked.sum()]}[reduction]
    out = npu_cross_entropy_loss(logits, target, weight, reduction, 2, smoothing)
    close(out[0], expected)
    close(out[1], log_prob)
    assert out[2].numel() == out[3].numel() == 0


def test_cross_entropy_loss_refuses_the_z_loss() -> None:
    with pytest.raises(ValueError, match="z-loss"):
        npu_cross_entropy_loss(draw(2, 3), torch.tensor([0, 1]), return_zloss=True)


def test_softmax_cross_entropy_takes_probabilities_as_labels() -> None:
    logits, labels = draw(3, 4), draw(3, 4, seed=1).softmax(-1)
    data = logits.numpy()
    expected = -(labels.numpy() * (data - np.log(np.exp(data).sum(-1, keepdims=True)))).sum(-1)
    close(npu_softmax_cross_entropy_with_logits(logits, labels), expected)


def test_sort_v2_returns_values_only_and_writes_out() -> None:
    x = draw(3, 5)
    close(npu_sort_v2(x, 0), np.sort(x.numpy(), 0))
    out = torch.empty_like(x)
    assert npu_sort_v2(x, descending=True, out=out) is out
    close(out, -np.sort(-x.numpy(), -1))


@pytest.mark.parametrize("transpose_first", [False, True])
def test_confusion_transpose_backward_undoes_the_forward(transpose_first: bool) -> None:
    x = draw(2, 3, 4, 5).requires_grad_()
    perm = (0, 2, 1, 3) if transpose_first else (1, 0, 2)
    shape = (2, 4, 15) if transpose_first else (6, 4, 5)
    out = npu_confusion_transpose(x, perm, shape, transpose_first)
    data = x.detach().numpy()
    want = data.transpose(perm).reshape(shape) if transpose_first else data.reshape(shape).transpose(perm)
    close(out, want)
    grad = draw(*out.shape, seed=1)
    (expected,) = grads(out, grad, x)
    # the flag of the backward call is the opposite of the forward's, its shape the forward's input
    between = (2, 3, 4, 5) if transpose_first else shape
    actual = npu_confusion_transpose_backward(grad, perm, between, not transpose_first)
    close(actual.reshape(x.shape), expected)


def test_layout_operators_move_elements_as_numpy_does() -> None:
    x = draw(2, 3, 4)
    close(npu_transpose(x, (2, 0, 1)), x.numpy().transpose(2, 0, 1))
    close(npu_slice(x, [0, 1, 2], [2, 1, 2]), x.numpy()[0:2, 1:2, 2:4])
    close(npu_broadcast(x[:, :1], [5, 2, 3, 4]), np.broadcast_to(x.numpy()[:, :1], (5, 2, 3, 4)))
    assert npu_dtype_cast(x, torch.int32).dtype is torch.int32
    assert one_(x.clone()).eq(1).all()


def test_one_hot_leaves_indices_out_of_range_off() -> None:
    expected = np.eye(6)[[5, 3, 2, 1]][:, :5]
    out = npu_one_hot(torch.tensor([5, 3, 2, 1]), depth=5)
    assert out.dtype is torch.float32
    close(out, expected)


def test_max_and_min_return_values_and_int32_indices() -> None:
    x = draw(3, 5)
    for function, value, index in ((npu_max, np.max, np.argmax), (npu_min, np.min, np.argmin)):
        values, indices = function(x, 1, True)
        close(values, value(x.numpy(), 1, keepdims=True))
        close(indices, index(x.numpy(), 1, keepdims=True))
        assert indices.dtype is torch.int32


@pytest.mark.parametrize(
    ("function", "shapes"),
    [
        (npu_fast_gelu, [(5,)]),
        (npu_swiglu, [(3, 4)]),
        (npu_mish, [(5,)]),
        (lambda x, g: npu_rms_norm(x, g)[0], [(3, 4), (4,)]),
        (lambda x, w, b: npu_group_norm_silu(x, w, b, 2)[0], [(2, 4, 3), (4,), (4,)]),
        (lambda x, g, b, w: npu_deep_norm(x, g, b, w)[2], [(2, 4), (2, 4), (4,), (4,)]),
        (npu_rotary_mul, [(1, 2, 2, 4), (1, 1, 2, 4), (1, 1, 2, 4)]),
    ],
)
def test_a_definition_is_differentiable_in_every_tensor(function: object, shapes: list[tuple[int, ...]]) -> None:
    inputs = tuple(draw(*shape, seed=i).requires_grad_() for i, shape in enumerate(shapes))
    assert torch.autograd.gradcheck(function, inputs)
