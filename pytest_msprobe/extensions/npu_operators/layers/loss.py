"""Losses."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def npu_softmax_cross_entropy_with_logits(self: Tensor, labels: Tensor) -> Tensor:
    """Return -sum(labels * log_softmax(self)) over the last dimension; ``labels`` are probabilities."""
    return -(labels * torch.log_softmax(self, -1)).sum(-1)


def npu_cross_entropy_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    reduction: str = "mean",
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    lse_square_scale_for_zloss: float = 0.0,
    return_zloss: bool = False,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return (loss, log_prob, zloss, lse_for_zloss) of logits (N, C) and class indices (N).

    loss is (N) with ``reduction="none"`` and (1) otherwise; log_prob is (N, C). The last two are empty.
    A negative ``ignore_index`` ignores nothing that may occur, targets being classes.
    Raises ValueError for the z-loss, which no device computes yet.
    """
    if return_zloss or lse_square_scale_for_zloss:
        raise ValueError("npu_cross_entropy_loss has no golden definition of its z-loss")
    loss = F.cross_entropy(
        input,
        target.long(),
        weight,
        reduction=reduction,
        ignore_index=ignore_index,
        label_smoothing=label_smoothing,
    )
    empty = input.new_empty(0)
    log_prob = torch.log_softmax(input.detach(), -1)
    return (loss if reduction == "none" else loss.reshape(1)), log_prob, empty, empty.clone()
