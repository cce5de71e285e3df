"""Cross entropy of a linear layer over a part of a vocabulary, computed token by token."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from tests.support.cann.operators.by_schema import Arguments, by_schema
from tests.support.cann.packed import floats, in_dtype


@by_schema
def npu_fused_linear_online_max_sum(args: Arguments) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return what a rank computes of the loss, bits of the mask in text first."""
    logits = floats(args.input) @ floats(args.weight).T
    highest, total, predicted, local, bits = [], [], [], [], ""
    for row, wanted in zip(logits, args.target.tolist(), strict=True):
        is_inside = args.vocab_start_index <= wanted <= args.vocab_end_index
        highest.append(max(row))
        total.append(math.fsum(math.exp(value - max(row)) for value in row))
        local.append(wanted - args.vocab_start_index if is_inside else 0)
        predicted.append(row[local[-1]] - max(row) if is_inside else 0.0)
        bits += "0" if is_inside else "1"
    bits += "1" * (-len(bits) % 8)
    mask = [int(bits[place : place + 8], 2) for place in range(0, len(bits), 8)]
    return (
        in_dtype(np.asarray(highest), torch.float32),
        in_dtype(np.asarray(total), torch.float32),
        in_dtype(np.asarray(predicted), torch.float32),
        torch.tensor(mask, dtype=torch.uint8),
        torch.tensor(local, dtype=args.target.dtype),
        in_dtype(logits, args.input.dtype) if args.return_logits else torch.empty(0, dtype=args.input.dtype),
    )


@by_schema
def npu_fused_cross_entropy_loss_with_max_sum(args: Arguments) -> tuple[Tensor, Tensor | None]:
    """Return the loss of each token, and the shares of the vocabulary where the logits are given."""
    loss = in_dtype(np.log(floats(args.sum_exp_logits)) - floats(args.predicted_logits), torch.float32)
    if args.vocab_parallel_logits is None:
        return loss, None
    shifted = floats(args.vocab_parallel_logits) - floats(args.logits_max)[:, None]
    return loss, in_dtype(np.exp(shifted) / floats(args.sum_exp_logits)[:, None], torch.float32)


@by_schema
def npu_fused_linear_cross_entropy_loss_with_max_sum_backward(args: Arguments) -> tuple[Tensor, Tensor]:
    """Return the gradients of the loss, summed up token by token."""
    x, w = floats(args.input), floats(args.weight)
    bits = "".join(f"{byte:08b}" for byte in args.target_mask.tolist())
    of_x, of_w = np.zeros_like(x), np.zeros_like(w)
    for i, share in enumerate(floats(args.grad)):
        if args.softmax is not None:
            values = floats(args.softmax)[i].copy()
        else:
            assert args.logits_max is not None
            assert args.sum_exp_logits is not None
            values = np.exp(w @ x[i] - float(args.logits_max[i])) / float(args.sum_exp_logits[i])
        values[int(args.masked_target[i])] -= bits[i] == "0"
        of_x[i] = share * values @ w
        of_w += np.outer(share * values, x[i])
    return in_dtype(of_x, args.input.dtype), in_dtype(of_w, args.input.dtype)
