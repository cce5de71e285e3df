"""Gradients of losses."""

from __future__ import annotations

import torch
from torch import Tensor

from pytest_msprobe.extensions.npu_operators.reference_arguments import refuse


def npu_softmax_cross_entropy_with_logits_backward(grad: Tensor, self: Tensor, labels: Tensor) -> Tensor:
    """Return grad * (softmax(self) - labels) over the last dimension, one entry of ``grad`` for each row.

    It is the gradient of ``npu_softmax_cross_entropy_with_logits`` for labels that add up to 1.
    """
    return grad.unsqueeze(-1) * (torch.softmax(self, -1) - labels)


def npu_binary_cross_entropy_with_logits_backward(
    grad_output: Tensor,
    self: Tensor,
    target: Tensor,
    weight_opt: Tensor | None,
    pos_weight_opt: Tensor | None,
    reduction: int,
) -> Tensor:
    """Return the gradient of ``binary_cross_entropy_with_logits`` for its logits.

    It is weight * ((1 - t + p t) * sigmoid(x) - p t) with p the weight of positives, over the number of logits where
    ``reduction`` is 1 (mean); 0 is none and 2 sum.
    """
    positive = target if pos_weight_opt is None else target * pos_weight_opt
    slope = (1 - target + positive) * torch.sigmoid(self) - positive
    if weight_opt is not None:
        slope = slope * weight_opt
    return grad_output * slope / (self.numel() if reduction == 1 else 1)


def npu_cross_entropy_loss_backward(
    grad_loss: Tensor, log_prob: Tensor, target: Tensor, weight: Tensor | None = None,
    grad_zloss: Tensor | None = None, lse_for_zloss: Tensor | None = None, reduction: str = "mean",
    ignore_index: int = -100, label_smoothing: float = 0.0, lse_square_scale_for_zloss: float = 0.0,
) -> Tensor:  # fmt: skip
    """Return the gradient of ``npu_cross_entropy_loss`` for its logits from its ``log_prob`` (N, C).

    The probabilities are exp(log_prob), as they are recorded. Of the loss -(1 - s) w[t] log_prob[t] - s / C sum_c w[c]
    log_prob[c], mean divides by the sum of w[t]. Without its scale the z-loss is 0 whatever its gradient is. Raises
    NotImplementedError for a z-loss, which no device computes yet.
    """
    refuse(
        "npu_cross_entropy_loss_backward",
        lse_square_scale_for_zloss=lse_square_scale_for_zloss or None,
    )
    classes = log_prob.shape[1]
    weights = log_prob.new_ones(classes) if weight is None else weight
    is_kept = target != ignore_index if ignore_index >= 0 else torch.ones_like(target, dtype=torch.bool)
    chosen = target.long().masked_fill(~is_kept, 0)
    of_target = weights[chosen] * is_kept
    scale = grad_loss.reshape(-1) * is_kept
    if reduction == "mean":
        scale = scale / of_target.sum()
    of_log_prob = (-label_smoothing / classes * weights).expand_as(log_prob).clone()
    of_log_prob.scatter_add_(1, chosen.unsqueeze(1), (-(1 - label_smoothing) * of_target).unsqueeze(1))
    of_log_prob = of_log_prob * scale.unsqueeze(1)
    return of_log_prob - torch.exp(log_prob) * of_log_prob.sum(1, keepdim=True)
