"""Cross entropy of a linear layer over a part of a vocabulary, computed token by token."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from tests.support.cann.packed import floats, in_dtype


def npu_fused_linear_online_max_sum(
    input: Tensor,  # noqa: A002
    weight: Tensor,
    target: Tensor,
    vocab_start_index: int,
    vocab_end_index: int,
    return_logits: bool = False,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return what a rank computes of the loss, bits of the mask in text first."""
    logits = floats(input) @ floats(weight).T
    highest, total, predicted, local, bits = [], [], [], [], ""
    for row, wanted in zip(logits, target.tolist(), strict=True):
        is_inside = vocab_start_index <= wanted <= vocab_end_index
        highest.append(max(row))
        total.append(math.fsum(math.exp(value - max(row)) for value in row))
        local.append(wanted - vocab_start_index if is_inside else 0)
        predicted.append(row[local[-1]] - max(row) if is_inside else 0.0)
        bits += "0" if is_inside else "1"
    bits += "1" * (-len(bits) % 8)
    mask = [int(bits[place : place + 8], 2) for place in range(0, len(bits), 8)]
    return (
        in_dtype(np.asarray(highest), torch.float32),
        in_dtype(np.asarray(total), torch.float32),
        in_dtype(np.asarray(predicted), torch.float32),
        torch.tensor(mask, dtype=torch.uint8),
        torch.tensor(local, dtype=target.dtype),
        in_dtype(logits, input.dtype) if return_logits else torch.empty(0, dtype=input.dtype),
    )


def npu_fused_cross_entropy_loss_with_max_sum(
    logits_max: Tensor,
    sum_exp_logits: Tensor,
    predicted_logits: Tensor,
    *,
    label_smoothing: float | None = 0.0,
    input: Tensor | None = None,  # noqa: A002
    weight: Tensor | None = None,
    vocab_parallel_logits: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Return the loss of each token, and the shares of the vocabulary where the logits are given."""
    loss = in_dtype(np.log(floats(sum_exp_logits)) - floats(predicted_logits), torch.float32)
    if vocab_parallel_logits is None:
        return loss, None
    shifted = floats(vocab_parallel_logits) - floats(logits_max)[:, None]
    return loss, in_dtype(np.exp(shifted) / floats(sum_exp_logits)[:, None], torch.float32)


def npu_fused_linear_cross_entropy_loss_with_max_sum_backward(
    grad: Tensor,
    input: Tensor,  # noqa: A002
    weight: Tensor,
    target_mask: Tensor,
    masked_target: Tensor,
    label_smoothing: float = 0.0,
    logits_max: Tensor | None = None,
    sum_exp_logits: Tensor | None = None,
    softmax: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the gradients of the loss, summed up token by token."""
    x, w = floats(input), floats(weight)
    bits = "".join(f"{byte:08b}" for byte in target_mask.tolist())
    of_x, of_w = np.zeros_like(x), np.zeros_like(w)
    for i, share in enumerate(floats(grad)):
        if softmax is not None:
            values = floats(softmax)[i].copy()
        else:
            assert logits_max is not None
            assert sum_exp_logits is not None
            values = np.exp(w @ x[i] - float(logits_max[i])) / float(sum_exp_logits[i])
        values[int(masked_target[i])] -= bits[i] == "0"
        of_x[i] = share * values @ w
        of_w += np.outer(share * values, x[i])
    return in_dtype(of_x, input.dtype), in_dtype(of_w, input.dtype)
