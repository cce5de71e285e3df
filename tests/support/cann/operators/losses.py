"""Losses and their gradients, row by row, and matrix products of batches."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor


def _log_softmax(row: list[float]) -> list[float]:
    top = max(row)
    total = top + math.log(math.fsum(math.exp(number - top) for number in row))
    return [number - total for number in row]


def npu_softmax_cross_entropy_with_logits(self: Tensor, labels: Tensor) -> Tensor:
    rows = zip(self.double().tolist(), labels.double().tolist(), strict=True)
    losses = [-sum(p * q for p, q in zip(labels_, _log_softmax(row), strict=True)) for row, labels_ in rows]
    return torch.tensor(losses, dtype=self.dtype)


def npu_softmax_cross_entropy_with_logits_backward(grad: Tensor, self: Tensor, labels: Tensor) -> Tensor:
    rows = zip(grad.double().tolist(), self.double().tolist(), labels.double().tolist(), strict=True)
    slopes = [
        [g * (math.exp(q) - p) for q, p in zip(_log_softmax(row), labels_, strict=True)] for g, row, labels_ in rows
    ]
    return torch.tensor(slopes, dtype=self.dtype)


def npu_binary_cross_entropy_with_logits_backward(
    grad_output: Tensor,
    self: Tensor,
    target: Tensor,
    weight_opt: Tensor | None,
    pos_weight_opt: Tensor | None,
    reduction: int,
) -> Tensor:
    ones = torch.ones_like(self)
    weight = (ones if weight_opt is None else ones * weight_opt).double()
    positive = (ones if pos_weight_opt is None else ones * pos_weight_opt).double()
    grad = (ones * grad_output).double() / (self.numel() if reduction == 1 else 1)
    x, t, step = self.double(), target.double(), 1e-6

    def loss(logits: Tensor) -> Tensor:
        return -(positive * t * (1 / (1 + (-logits).exp())).log() + (1 - t) * (1 / (1 + logits.exp())).log())

    return (grad * weight * (loss(x + step) - loss(x - step)) / (2 * step)).to(self.dtype)


def npu_cross_entropy_loss(
    input: Tensor,  # noqa: A002
    target: Tensor,
    weight: Tensor | None = None,
    reduction: str = "mean",
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    lse_square_scale_for_zloss: float = 0.0,
    return_zloss: bool = False,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    classes = input.shape[1]
    weights = [1.0] * classes if weight is None else weight.double().tolist()
    log_prob = [_log_softmax(row) for row in input.double().tolist()]
    losses, total = [], 0.0
    for row, chosen in zip(log_prob, target.tolist(), strict=True):
        if chosen == ignore_index:
            losses.append(0.0)
            continue
        smooth = -sum(w * p for w, p in zip(weights, row, strict=True)) * label_smoothing / classes
        losses.append(-(1 - label_smoothing) * weights[chosen] * row[chosen] + smooth)
        total += weights[chosen]
    if reduction != "none":
        losses = [sum(losses) / (total if reduction == "mean" else 1.0)]
    empty = torch.empty(0, dtype=input.dtype)
    return torch.tensor(losses, dtype=input.dtype), torch.tensor(log_prob, dtype=input.dtype), empty, empty.clone()


def npu_cross_entropy_loss_backward(
    grad_loss: Tensor,
    log_prob: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    grad_zloss: Tensor | None = None,
    lse_for_zloss: Tensor | None = None,
    reduction: str = "mean",
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    lse_square_scale_for_zloss: float = 0.0,
) -> Tensor:
    rows, classes = log_prob.shape
    weights = [1.0] * classes if weight is None else weight.double().tolist()
    kept = [chosen != ignore_index for chosen in target.tolist()]
    total = sum(weights[chosen] for chosen, is_kept in zip(target.tolist(), kept, strict=True) if is_kept)
    out = torch.zeros(rows, classes, dtype=torch.float64)
    for i, chosen in enumerate(target.tolist()):
        if not kept[i]:
            continue
        grad = float(grad_loss[i] if reduction == "none" else grad_loss.flatten()[0])
        grad /= total if reduction == "mean" else 1.0
        for c in range(classes):
            share = (1 - label_smoothing) * weights[c] * (c == chosen) + label_smoothing / classes * weights[c]
            for z in range(classes):
                # the slope of -share * log_prob[c] for logit z
                out[i, z] -= grad * share * ((c == z) - math.exp(float(log_prob[i, z])))
    return out.to(log_prob.dtype)


def npu_bmmV2(self: Tensor, mat2: Tensor, output_sizes: Sequence[int]) -> Tensor:  # noqa: N802
    product = torch.einsum("...mk,...kn->...mn", self.double(), mat2.double()).to(self.dtype)
    return product.reshape(list(output_sizes)) if output_sizes else product


def npu_bmm_v2_mat1_backward(grad: Tensor, mat1: Tensor, mat2: Tensor, size: Sequence[int]) -> Tensor:
    out = torch.einsum("...mn,...kn->...mk", grad.double(), mat2.double())
    return _summed(out, size).to(mat1.dtype)


def npu_bmm_v2_mat2_backward(grad: Tensor, mat1: Tensor, mat2: Tensor, size: Sequence[int]) -> Tensor:
    out = torch.einsum("...mk,...mn->...kn", mat1.double(), grad.double())
    return _summed(out, size).to(mat2.dtype)


def _summed(out: Tensor, size: Sequence[int]) -> Tensor:
    while out.dim() > len(size):
        out = out.sum(0)
    for dim, length in enumerate(size):
        if length == 1 != out.shape[dim]:
            out = out.sum(dim, keepdim=True)
    return out


def npu_transpose_batchmatmul(
    input: Tensor,  # noqa: A002
    weight: Tensor,
    *,
    bias: Tensor | None = None,
    scale: Tensor | None = None,
    perm_x1: Sequence[int] | None = None,
    perm_x2: Sequence[int] | None = None,
    perm_y: Sequence[int] | None = None,
    batch_split_factor: int | None = 1,
) -> Tensor:
    left, right = input.double(), weight.double()
    left = left if perm_x1 is None else left.permute(list(perm_x1))
    right = right if perm_x2 is None else right.permute(list(perm_x2))
    product = torch.einsum("bmk,bkn->bmn", left, right)
    return product.permute([1, 0, 2] if perm_y is None else list(perm_y)).contiguous().to(input.dtype)
