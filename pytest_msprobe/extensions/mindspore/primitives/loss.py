"""Losses."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


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
