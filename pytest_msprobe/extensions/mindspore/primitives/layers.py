"""Layers and losses: activations, products of matrices with the biases behind them, and normalizations."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from pytest_msprobe.extensions.mindspore import functional_layers


def softmax(x: Tensor, *, axis: int | Sequence[int]) -> Tensor:
    """Return exponentials divided by their sum along an axis."""
    return torch.softmax(x, _one(axis))


def log_softmax(x: Tensor, *, axis: int | Sequence[int]) -> Tensor:
    """Return the logarithm of softmax along an axis."""
    return torch.log_softmax(x, _one(axis))


def _one(axis: int | Sequence[int]) -> int:
    if isinstance(axis, int):
        return axis
    if len(axis) != 1:
        raise NotImplementedError("softmax along several axes has no golden definition")
    return axis[0]


def gelu(x: Tensor) -> Tensor:
    """Return GeLU by its approximation with tanh, which is what the primitive promises."""
    return F.gelu(x, approximate="tanh")


def elu(x: Tensor, *, alpha: float) -> Tensor:
    """Return the input where it is positive, ``alpha`` (exp(x) - 1) otherwise."""
    return F.elu(x, alpha)


def dropout(x: Tensor, *, p: float) -> tuple[Tensor, Tensor]:
    """Return the input and the mask with which all is kept, which is all that two runs agree on."""
    if p != 1:
        raise NotImplementedError("what dropout draws has no golden definition")
    return x.clone(), torch.ones_like(x)


def add_n(*tensors: Tensor | Sequence[Tensor]) -> Tensor:
    """Return the sum of tensors, given one by one or as one sequence."""
    summands = tensors[0] if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)) else tensors
    return torch.stack(list(summands)).sum(0)  # type: ignore[arg-type]


def matmul(x: Tensor, y: Tensor, *, transpose_a: bool, transpose_b: bool) -> Tensor:
    """Return the product of matrices, or of batches of them, either of which may be transposed before."""
    return (x.mT if transpose_a else x) @ (y.mT if transpose_b else y)


def bias_add(x: Tensor, bias: Tensor, *, data_format: str) -> Tensor:
    """Return the input with a bias for each channel: the second axis, or the last one where the format says so."""
    behind = 0 if data_format.endswith("C") else x.dim() - 2
    return x + bias.reshape(-1, *[1] * behind)


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
    return functional_layers.rms_norm(x, gamma, epsilon)


def softmax_cross_entropy(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return the cross entropy of each row of logits with probabilities, and its gradient."""
    shares = torch.log_softmax(logits, -1)
    return -(labels * shares).sum(-1), shares.exp() - labels


def sparse_softmax_cross_entropy(logits: Tensor, labels: Tensor, *, is_grad: bool) -> Tensor:
    """Return the mean cross entropy of logits with class numbers, or its gradient."""
    if is_grad:
        targets = F.one_hot(labels.long(), logits.shape[-1])
        return (torch.softmax(logits, -1) - targets) / logits.shape[0]
    return F.cross_entropy(logits, labels.long())


def nll_loss(
    logits: Tensor, labels: Tensor, weight: Tensor, *, reduction: str, ignore_index: int
) -> tuple[Tensor, Tensor]:
    """Return the negative log likelihood of class numbers, and the sum of the weights of those that count."""
    classes = labels.long()
    mean = F.nll_loss(logits, classes, weight, ignore_index=ignore_index, reduction=reduction)
    return mean, weight[classes[classes != ignore_index]].sum()


def binary_cross_entropy(logits: Tensor, labels: Tensor, weight: Tensor | None = None, *, reduction: str) -> Tensor:
    """Return the cross entropy of probabilities, which MindSpore calls logits, with labels."""
    return F.binary_cross_entropy(logits, labels, weight, reduction=reduction)


def binary_cross_entropy_with_logits(
    logits: Tensor, labels: Tensor, weight: Tensor | None, pos_weight: Tensor | None, *, reduction: str
) -> Tensor:
    """Return the cross entropy of logits with labels."""
    return F.binary_cross_entropy_with_logits(logits, labels, weight, pos_weight=pos_weight, reduction=reduction)


def sigmoid_cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the cross entropy of each logit with its label."""
    return F.binary_cross_entropy_with_logits(logits, labels, reduction="none")


def smooth_l1_loss(prediction: Tensor, target: Tensor, *, beta: float, reduction: str) -> Tensor:
    """Return the squared error below ``beta``, the absolute error above."""
    return F.smooth_l1_loss(prediction, target, beta=beta, reduction=reduction)


def kl_div(logits: Tensor, labels: Tensor, *, reduction: str) -> Tensor:
    """Return the divergence of log probabilities from labels."""
    return F.kl_div(logits, labels, reduction=reduction)


def l2_loss(x: Tensor) -> Tensor:
    """Return half the sum of squares."""
    return x.square().sum() / 2
