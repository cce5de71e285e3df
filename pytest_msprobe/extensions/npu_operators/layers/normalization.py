"""Normalizations: RMS, layer, deep and group."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from pytest_msprobe.engine.replay.ops.operators import golden
from pytest_msprobe.engine.replay.ops.traits import OpInfo
from pytest_msprobe.extensions.npu_operators.arguments import at_least_float32

if TYPE_CHECKING:
    from collections.abc import Sequence


def _last_dims(count: int) -> list[int]:
    return list(range(-count, 0))


@golden("NPU.npu_rms_norm")
def npu_rms_norm(self: Tensor, gamma: Tensor, epsilon: float = 1e-6) -> tuple[Tensor, Tensor]:
    """Return (x * rstd * gamma, rstd), rstd = 1 / sqrt(mean(x^2) + epsilon) over the last gamma.dim() dimensions.

    rstd keeps those dimensions as ones (Zhang and Sennrich, 2019).
    """
    rstd = torch.rsqrt(self.square().mean(_last_dims(gamma.dim()), keepdim=True) + epsilon)
    return self * rstd * gamma, rstd.detach()


@golden("Aten.npu_rms_norm_backward")
def npu_rms_norm_backward(dy: Tensor, self: Tensor, gamma: Tensor, rstd: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradients of :func:`npu_rms_norm` for x and gamma; gamma's is summed over all rows, in its shape."""
    normalized = self * rstd
    scaled = dy * gamma
    along = (scaled * normalized).mean(_last_dims(gamma.dim()), keepdim=True)
    return rstd * (scaled - normalized * along), (dy * normalized).sum_to_size(gamma.shape)


@golden("NPU.npu_add_rms_norm")
def npu_add_rms_norm(x1: Tensor, x2: Tensor, gamma: Tensor, epsilon: float = 1e-6) -> tuple[Tensor, Tensor, Tensor]:
    """Return (y, rstd, x) with x = x1 + x2 and (y, rstd) its :func:`npu_rms_norm`."""
    x = x1 + x2
    y, rstd = npu_rms_norm(x, gamma, epsilon)
    return y, rstd, x


@golden("NPU.npu_gemma_rms_norm")
def npu_gemma_rms_norm(self: Tensor, gamma: Tensor, epsilon: float = 1e-6) -> tuple[Tensor, Tensor]:
    """Return :func:`npu_rms_norm` with 1 + gamma, as Gemma's layers have it."""
    return npu_rms_norm(self, 1 + gamma, epsilon)


@golden("NPU.npu_add_rms_norm_cast")
def npu_add_rms_norm_cast(
    x1: Tensor, x2: Tensor, gamma: Tensor, epsilon: float = 1e-6
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return (y in float32, y, rstd, x) of :func:`npu_add_rms_norm`."""
    y, rstd, x = npu_add_rms_norm(x1, x2, gamma, epsilon)
    return at_least_float32(y), y, rstd, x


@golden("NPU.npu_add_rms_norm_v2", OpInfo(in_place=True))
def npu_add_rms_norm_v2(x1: Tensor, x2: Tensor, gamma: Tensor, epsilon: float = 1e-6) -> Tensor:
    """Write y of :func:`npu_add_rms_norm` into x1 and x into x2, and return rstd."""
    y, rstd, x = npu_add_rms_norm(x1, x2, gamma, epsilon)
    x1.copy_(y)
    x2.copy_(x)
    return rstd


@golden("NPU.npu_add_rms_norm_v2_functional")
def npu_add_rms_norm_v2_functional(
    x1: Tensor, x2: Tensor, gamma: Tensor, epsilon: float = 1e-6
) -> tuple[Tensor, Tensor, Tensor]:
    """Return (rstd, y, x) of :func:`npu_add_rms_norm`, the order in which :func:`npu_add_rms_norm_v2` has them."""
    y, rstd, x = npu_add_rms_norm(x1, x2, gamma, epsilon)
    return rstd, y, x


@golden("NPU.npu_add_layer_norm")
def npu_add_layer_norm(
    x1: Tensor,
    x2: Tensor,
    gamma: Tensor,
    beta: Tensor,
    epsilon: float = 1e-5,
    additional_output: bool = False,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Return (y, mean, rstd, x): layer normalization of x = x1 + x2 over the last gamma.dim() dimensions.

    mean and rstd have one dimension, of size 1, in their place. Nothing is promised of x, here None, without
    ``additional_output``.
    """
    dims = _last_dims(gamma.dim())
    x = x1 + x2
    mean = x.mean(dims, keepdim=True)
    centred = x - mean
    rstd = torch.rsqrt(centred.square().mean(dims, keepdim=True) + epsilon)
    shape = (*x.shape[: x.dim() - gamma.dim()], 1)
    statistics = (mean.detach().reshape(shape), rstd.detach().reshape(shape))
    return centred * rstd * gamma + beta, *statistics, x if additional_output else None


@golden("NPU.npu_layer_norm_eval")
def npu_layer_norm_eval(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Return layer normalization over the last dimensions, ``normalized_shape``."""
    return F.layer_norm(input, list(normalized_shape), weight, bias, eps)


@golden("NPU.npu_deep_norm")
def npu_deep_norm(
    x: Tensor, gx: Tensor, beta: Tensor, gamma: Tensor, alpha: float = 0.3, epsilon: float = 1e-6
) -> tuple[Tensor, Tensor, Tensor]:
    """Return (mean, rstd, y): layer normalization of alpha * x + gx over the last gamma.dim() dimensions.

    mean and rstd keep those dimensions as ones (Wang et al., DeepNet, 2022).
    """
    dims = _last_dims(gamma.dim())
    z = alpha * x + gx
    mean = z.mean(dims, keepdim=True)
    centred = z - mean
    rstd = torch.rsqrt(centred.square().mean(dims, keepdim=True) + epsilon)
    return mean.detach(), rstd.detach(), centred * rstd * gamma + beta


@golden("NPU.npu_group_norm_silu")
def npu_group_norm_silu(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    group: int,
    eps: float = 1e-5,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return (silu(group_norm(input)), mean, rstd); input is (N, C, ...), mean and rstd are (N, group)."""
    grouped = input.reshape(input.shape[0], group, -1)
    mean = grouped.mean(-1)
    rstd = torch.rsqrt(grouped.var(-1, unbiased=False) + eps)
    return F.silu(F.group_norm(input, group, weight, bias, eps)), mean.detach(), rstd.detach()


@golden("NPU.npu_group_norm_swish")
def npu_group_norm_swish(
    input: Tensor,
    num_groups: int,
    weight: Tensor,
    bias: Tensor,
    eps: float | None = 1e-5,
    swish_scale: float | None = 1.0,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return (y * sigmoid(swish_scale * y), mean, rstd), y = group_norm(input); shapes as npu_group_norm_silu's."""
    epsilon = 1e-5 if eps is None else eps
    _, mean, rstd = npu_group_norm_silu(input, weight, bias, num_groups, epsilon)
    y = F.group_norm(input, num_groups, weight, bias, epsilon)
    return y * torch.sigmoid((1.0 if swish_scale is None else swish_scale) * y), mean, rstd


def _of_normalized(grad: Tensor, normalized: Tensor, rstd: Tensor, dims: Sequence[int]) -> Tensor:
    """Return the gradient for x of normalized = (x - mean) * rstd over ``dims``, both depending on x."""
    along = (grad * normalized).mean(list(dims), keepdim=True)
    return rstd * (grad - grad.mean(list(dims), keepdim=True) - normalized * along)


def _like_rows(statistic: Tensor, x: Tensor, dims: int) -> Tensor:
    """Add to a statistic of the last ``dims`` dimensions of ``x`` that many dimensions of size 1."""
    return statistic.reshape(*x.shape[: x.dim() - dims], *[1] * dims)


@golden("Aten.npu_layernorm_grad")
def npu_layernorm_grad(
    grad_out: Tensor,
    input: Tensor,
    normalized_shape: Sequence[int],
    mean: Tensor,
    rstd: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Return the gradients of layer normalization over the last dimensions for input, weight and bias.

    Nothing is promised of the latter two, here None, where there is no weight and no bias.
    """
    count = len(normalized_shape)
    centre, scale = _like_rows(mean, input, count), _like_rows(rstd, input, count)
    normalized = (input - centre) * scale
    shape = list(normalized_shape)
    grad = grad_out if weight is None else grad_out * weight
    return (
        _of_normalized(grad, normalized, scale, range(-count, 0)),
        None if weight is None else (grad_out * normalized).sum_to_size(shape),
        None if bias is None else grad_out.sum_to_size(shape),
    )


@golden("Aten.npu_add_layer_norm_backward")
def npu_add_layer_norm_backward(
    dy_opt: Tensor | None,
    x1: Tensor,
    x2: Tensor,
    rstd: Tensor,
    mean: Tensor,
    gamma: Tensor,
    dsum_opt: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the gradients of ``npu_add_layer_norm`` for x1, x2 (the same), gamma and beta.

    ``dy_opt`` and ``dsum_opt`` are those of its results y and x; one that is missing counts as 0.
    """
    x = x1 + x2
    dy = torch.zeros_like(x) if dy_opt is None else dy_opt
    dx, dgamma, dbeta = npu_layernorm_grad(dy, x, gamma.shape, mean, rstd, gamma, gamma)
    if dgamma is None or dbeta is None:
        raise ValueError("npu_add_layer_norm_backward needs gamma")
    dx = dx if dsum_opt is None else dx + dsum_opt
    return dx, dx.clone(), dgamma, dbeta


@golden("Aten.npu_deep_norm_backward")
def npu_deep_norm_backward(
    dy: Tensor, x: Tensor, gx: Tensor, gamma: Tensor, mean: Tensor, rstd: Tensor, alpha: float = 0.3
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the gradients of ``npu_deep_norm`` for x, gx, beta and gamma, in this order."""
    dz, dgamma, dbeta = npu_layernorm_grad(dy, alpha * x + gx, gamma.shape, mean, rstd, gamma, gamma)
    if dgamma is None or dbeta is None:
        raise ValueError("npu_deep_norm_backward needs gamma")
    return alpha * dz, dz, dbeta, dgamma


@golden("Aten.npu_group_norm_swish_grad")
def npu_group_norm_swish_grad(
    grad: Tensor, input: Tensor, num_groups: int, weight: Tensor, bias: Tensor, mean: Tensor, rstd: Tensor,
    grad_input_mask: Sequence[bool], swish_scale: float | None = 1.0,
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:  # fmt: skip
    """Return the gradients of ``npu_group_norm_swish`` for input, weight and bias, None where the mask is false.

    ``input`` is (N, C, ...), ``mean`` and ``rstd`` are (N, num_groups).
    """
    slope = 1.0 if swish_scale is None else swish_scale
    batch, channels = input.shape[:2]
    grouped = input.reshape(batch, num_groups, -1)
    scale = rstd.reshape(batch, num_groups, 1)
    normalized = (grouped - mean.reshape(batch, num_groups, 1)) * scale
    by_channel = normalized.reshape(batch, channels, -1)
    y = by_channel * weight.reshape(1, channels, 1) + bias.reshape(1, channels, 1)
    sigmoid = torch.sigmoid(slope * y)
    dy = grad.reshape(batch, channels, -1) * sigmoid * (1 + slope * y * (1 - sigmoid))
    of_groups = (dy * weight.reshape(1, channels, 1)).reshape(batch, num_groups, -1)
    wants_input, wants_weight, wants_bias = grad_input_mask
    return (
        _of_normalized(of_groups, normalized, scale, [-1]).reshape(input.shape) if wants_input else None,
        (dy * by_channel).sum((0, 2)) if wants_weight else None,
        dy.sum((0, 2)) if wants_bias else None,
    )


@golden("Aten.npu_renorm_backward")
def npu_renorm_backward(
    grad: Tensor,
    self: Tensor,
    p: float,
    dim: int,
    maxnorm: float,
) -> Tensor:
    """Return the gradient of ``torch.renorm``, which brings the slices along ``dim`` to a norm of ``maxnorm`` at most.

    The slices below that norm get the gradient as it is. What torch adds to a norm before it divides, 1e-7, is there.
    """
    with torch.enable_grad():
        x = self.detach().clone().requires_grad_()
        (gradient,) = torch.autograd.grad(torch.renorm(x, p, dim, maxnorm), x, grad)
    return gradient


# what op-plugin hands to the device
_EPSILON = 1e-5


@golden("NPU.npu_normalize_batch")
def npu_normalize_batch(self: Tensor, seq_len: Tensor, normalize_type: int = 0) -> Tensor:
    """Return (x - mean) / (std + 1e-5) of all steps of ``self`` (N, C, D), over the first ``seq_len`` (N) of them.

    ``normalize_type`` 0 takes mean and standard deviation of each feature, 1 of all features of a sequence. The
    deviation is the unbiased one, as op-plugin's tests have it. Raises ValueError for another type.
    """
    if normalize_type not in (0, 1):
        raise ValueError(f"normalize_type {normalize_type} of npu_normalize_batch is neither 0 nor 1")
    results = []
    for x, length in zip(self, seq_len.tolist(), strict=True):
        frames = x[:, :length]
        over = (1,) if normalize_type == 0 else (0, 1)
        std, mean = torch.std_mean(frames, over, keepdim=True)
        results.append((x - mean) / (std + _EPSILON))
    return torch.stack(results)
