"""Losses and their gradients, row by row, and the matrix product of batches."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from tests.support.cann.operators.by_schema import Arguments, by_schema


def _log_softmax(row: list[float]) -> list[float]:
    top = max(row)
    total = top + math.log(math.fsum(math.exp(number - top) for number in row))
    return [number - total for number in row]


@by_schema
def npu_softmax_cross_entropy_with_logits(args: Arguments) -> Tensor:
    rows = zip(args.self.double().tolist(), args.labels.double().tolist(), strict=True)
    losses = [-sum(p * q for p, q in zip(labels_, _log_softmax(row), strict=True)) for row, labels_ in rows]
    return torch.tensor(losses, dtype=args.self.dtype)


@by_schema
def npu_softmax_cross_entropy_with_logits_backward(args: Arguments) -> Tensor:
    rows = zip(args.grad.double().tolist(), args.self.double().tolist(), args.labels.double().tolist(), strict=True)
    slopes = [
        [g * (math.exp(q) - p) for q, p in zip(_log_softmax(row), labels_, strict=True)] for g, row, labels_ in rows
    ]
    return torch.tensor(slopes, dtype=args.self.dtype)


@by_schema
def npu_binary_cross_entropy_with_logits_backward(args: Arguments) -> Tensor:
    ones = torch.ones_like(args.self)
    weight = (ones if args.weight_opt is None else ones * args.weight_opt).double()
    positive = (ones if args.pos_weight_opt is None else ones * args.pos_weight_opt).double()
    grad = (ones * args.grad_output).double() / (args.self.numel() if args.reduction == 1 else 1)
    x, t, step = args.self.double(), args.target.double(), 1e-6

    def loss(logits: Tensor) -> Tensor:
        return -(positive * t * (1 / (1 + (-logits).exp())).log() + (1 - t) * (1 / (1 + logits.exp())).log())

    return (grad * weight * (loss(x + step) - loss(x - step)) / (2 * step)).to(args.self.dtype)


@by_schema
def npu_cross_entropy_loss(args: Arguments) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    classes = args.input.shape[1]
    weights = [1.0] * classes if args.weight is None else args.weight.double().tolist()
    log_prob = [_log_softmax(row) for row in args.input.double().tolist()]
    losses, total = [], 0.0
    for row, chosen in zip(log_prob, args.target.tolist(), strict=True):
        if chosen == args.ignore_index:
            losses.append(0.0)
            continue
        smooth = -sum(w * p for w, p in zip(weights, row, strict=True)) * args.label_smoothing / classes
        losses.append(-(1 - args.label_smoothing) * weights[chosen] * row[chosen] + smooth)
        total += weights[chosen]
    if args.reduction != "none":
        losses = [sum(losses) / (total if args.reduction == "mean" else 1.0)]
    empty = torch.empty(0, dtype=args.input.dtype)
    return (
        torch.tensor(losses, dtype=args.input.dtype),
        torch.tensor(log_prob, dtype=args.input.dtype),
        empty,
        empty.clone(),
    )


@by_schema
def npu_cross_entropy_loss_backward(args: Arguments) -> Tensor:
    rows, classes = args.log_prob.shape
    weights = [1.0] * classes if args.weight is None else args.weight.double().tolist()
    kept = [chosen != args.ignore_index for chosen in args.target.tolist()]
    total = sum(weights[chosen] for chosen, is_kept in zip(args.target.tolist(), kept, strict=True) if is_kept)
    out = torch.zeros(rows, classes, dtype=torch.float64)
    for i, chosen in enumerate(args.target.tolist()):
        if not kept[i]:
            continue
        grad = float(args.grad_loss[i] if args.reduction == "none" else args.grad_loss.flatten()[0])
        grad /= total if args.reduction == "mean" else 1.0
        for c in range(classes):
            share = (1 - args.label_smoothing) * weights[c] * (c == chosen) + args.label_smoothing / classes * weights[
                c
            ]
            for z in range(classes):
                # the slope of -share * log_prob[c] for logit z
                out[i, z] -= grad * share * ((c == z) - math.exp(float(args.log_prob[i, z])))
    return out.to(args.log_prob.dtype)


@by_schema
def npu_bmmV2(args: Arguments) -> Tensor:  # noqa: N802
    product = torch.einsum("...mk,...kn->...mn", args.self.double(), args.mat2.double()).to(args.self.dtype)
    return product.reshape(list(args.output_sizes)) if args.output_sizes else product
