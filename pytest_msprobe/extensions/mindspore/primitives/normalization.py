"""Inputs brought to mean 0 and variance 1."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from pytest_msprobe.extensions.mindspore import functional


def batch_norm(
    x: Tensor,
    scale: Tensor,
    bias: Tensor,
    mean: Tensor,
    variance: Tensor,
    *,
    is_training: bool,
    epsilon: float,
    momentum: float,
    data_format: str,
) -> tuple[Tensor]:
    """Return the input normalised by channel; in training by its own statistics, which move the running ones.

    The other outputs are what the gradient's kernel needs, and no device promises them.
    """
    if data_format not in ("NCHW", "NCDHW"):
        raise NotImplementedError(f"the layout {data_format} has no golden definition")
    return (F.batch_norm(x, mean, variance, scale, bias, is_training, momentum, epsilon),)


def layer_norm(
    x: Tensor, gamma: Tensor, beta: Tensor, *, begin_norm_axis: int, begin_params_axis: int, epsilon: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the input normalised along its axes from one on, and the mean and variance taken out of it."""
    axes = list(range(begin_norm_axis % x.dim(), x.dim()))
    mean, variance = x.mean(axes, keepdim=True), x.var(axes, correction=0, keepdim=True)
    shape = x.shape[begin_params_axis % x.dim() :]
    normalised = (x - mean) * torch.rsqrt(variance + epsilon) * gamma.reshape(shape) + beta.reshape(shape)
    return normalised, mean, variance


def group_norm(
    x: Tensor, num_groups: int, weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the input normalised by groups of channels, and the mean and the reciprocal deviation of each."""
    groups = x.reshape(x.shape[0], num_groups, -1)
    deviation = torch.rsqrt(groups.var(-1, correction=0) + eps)
    return F.group_norm(x, num_groups, weight, bias, eps), groups.mean(-1), deviation


def l2_normalize(x: Tensor, *, axis: int | list[int], epsilon: float) -> Tensor:
    """Return the input over its 2-norm along an axis; the square of the norm is at least ``epsilon``."""
    return x * torch.rsqrt(x.square().sum(axis, keepdim=True).clamp(min=epsilon))


def instance_norm(
    x: Tensor, gamma: Tensor, beta: Tensor, mean: Tensor, variance: Tensor, *, epsilon: float
) -> tuple[Tensor]:
    """Return each channel of each image normalised by its own statistics.

    Scale and bias are of each channel, or of each channel of each image. What becomes of the running statistics is not
    judged: devices do not agree on it.
    """
    shape = (-1, x.shape[1], *[1] * (x.dim() - 2))
    return (F.instance_norm(x, eps=epsilon) * gamma.reshape(shape) + beta.reshape(shape),)


def rms_norm(x: Tensor, gamma: Tensor, *, epsilon: float) -> tuple[Tensor, Tensor]:
    """Return the input over its root mean square along the axes of gamma, times gamma, and one over it."""
    return functional.rms_norm(x, gamma, epsilon)
