"""Normalizations: RMS, layer, deep and group."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F

from pytest_msprobe.extensions.npu_operators.reference_arguments import at_least_float32

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor


def _last_dims(count: int) -> list[int]:
    return list(range(-count, 0))


def npu_rms_norm(self: Tensor, gamma: Tensor, epsilon: float = 1e-6) -> tuple[Tensor, Tensor]:
    """Return (x * rstd * gamma, rstd), rstd = 1 / sqrt(mean(x^2) + epsilon) over the last gamma.dim() dimensions.

    rstd keeps those dimensions as ones (Zhang and Sennrich, 2019).
    """
    rstd = torch.rsqrt(self.square().mean(_last_dims(gamma.dim()), keepdim=True) + epsilon)
    return self * rstd * gamma, rstd.detach()


def npu_rms_norm_backward(dy: Tensor, self: Tensor, gamma: Tensor, rstd: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradients of :func:`npu_rms_norm` for x and gamma; gamma's is summed over all rows, in its shape."""
    normalized = self * rstd
    scaled = dy * gamma
    along = (scaled * normalized).mean(_last_dims(gamma.dim()), keepdim=True)
    return rstd * (scaled - normalized * along), (dy * normalized).sum_to_size(gamma.shape)


def npu_add_rms_norm(x1: Tensor, x2: Tensor, gamma: Tensor, epsilon: float = 1e-6) -> tuple[Tensor, Tensor, Tensor]:
    """Return (y, rstd, x) with x = x1 + x2 and (y, rstd) its :func:`npu_rms_norm`."""
    x = x1 + x2
    y, rstd = npu_rms_norm(x, gamma, epsilon)
    return y, rstd, x


def npu_gemma_rms_norm(self: Tensor, gamma: Tensor, epsilon: float = 1e-6) -> tuple[Tensor, Tensor]:
    """Return :func:`npu_rms_norm` with 1 + gamma, as Gemma's layers have it."""
    return npu_rms_norm(self, 1 + gamma, epsilon)


def npu_add_rms_norm_cast(
    x1: Tensor, x2: Tensor, gamma: Tensor, epsilon: float = 1e-6
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return (y in float32, y, rstd, x) of :func:`npu_add_rms_norm`."""
    y, rstd, x = npu_add_rms_norm(x1, x2, gamma, epsilon)
    return at_least_float32(y), y, rstd, x


def npu_add_rms_norm_v2(x1: Tensor, x2: Tensor, gamma: Tensor, epsilon: float = 1e-6) -> Tensor:
    """Write y of :func:`npu_add_rms_norm` into x1 and x into x2, and return rstd."""
    y, rstd, x = npu_add_rms_norm(x1, x2, gamma, epsilon)
    x1.copy_(y)
    x2.copy_(x)
    return rstd


def npu_add_rms_norm_v2_functional(
    x1: Tensor, x2: Tensor, gamma: Tensor, epsilon: float = 1e-6
) -> tuple[Tensor, Tensor, Tensor]:
    """Return (rstd, y, x) of :func:`npu_add_rms_norm`, the order in which :func:`npu_add_rms_norm_v2` has them."""
    y, rstd, x = npu_add_rms_norm(x1, x2, gamma, epsilon)
    return rstd, y, x


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


def npu_layer_norm_eval(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Return layer normalization over the last dimensions, ``normalized_shape``."""
    return F.layer_norm(input, list(normalized_shape), weight, bias, eps)


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
