"""Norms, products, rotations, transpositions and choices of experts as layers of large models have them, in float64."""

from __future__ import annotations

import torch
from torch import Tensor

from tests.support.cann.operators.by_schema import Arguments, by_schema


@by_schema
def npu_rms_norm(args: Arguments) -> tuple[Tensor, Tensor]:
    dims = tuple(range(-args.gamma.dim(), 0))
    x = args.self.double()
    rstd = 1 / torch.sqrt((x * x).mean(dims, keepdim=True) + args.epsilon)
    return (x * rstd * args.gamma.double()).to(args.self.dtype), rstd.float()


@by_schema
def npu_rms_norm_backward(args: Arguments) -> tuple[Tensor, Tensor]:
    dims = tuple(range(-args.gamma.dim(), 0))
    normed, scaled = args.self.double() * args.rstd.double(), args.dy.double() * args.gamma.double()
    of_x = args.rstd.double() * (scaled - normed * (scaled * normed).mean(dims, keepdim=True))
    of_gamma = (args.dy.double() * normed).reshape(-1, *args.gamma.shape).sum(0)
    return of_x.to(args.self.dtype), of_gamma.to(torch.float32)


@by_schema
def npu_layer_norm_eval(args: Arguments) -> Tensor:
    x = args.input.double().flatten(-len(args.normalized_shape))
    deviation = x - x.mean(-1, keepdim=True)
    y = (deviation / torch.sqrt((deviation**2).mean(-1, keepdim=True) + args.eps)).reshape(args.input.shape)
    y = y if args.weight is None else y * args.weight.double()
    return (y if args.bias is None else y + args.bias.double()).to(args.input.dtype)


@by_schema
def npu_linear(args: Arguments) -> Tensor:
    y = torch.einsum("...i,oi->...o", args.input.double(), args.weight.double())
    return (y if args.bias is None else y + args.bias.double()).to(args.input.dtype)


@by_schema
def npu_linear_backward(args: Arguments) -> tuple[Tensor, Tensor]:
    of_input = torch.einsum("...o,oi->...i", args.grad.double(), args.weight.double())
    rows, arriving = args.input.double().flatten(0, -2), args.grad.double().flatten(0, -2)
    of_weight = torch.einsum("no,ni->oi", arriving, rows)
    return of_input.to(args.input.dtype), of_weight.to(args.weight.dtype)


@by_schema
def npu_rotary_mul(args: Arguments) -> Tensor:
    turned = (
        _turned(args.self.double(), args.rotary_mode)
        if args.rotate is None
        else args.self.double() @ args.rotate.double()
    )
    return (args.self.double() * args.r1.double() + turned * args.r2.double()).to(args.self.dtype)


@by_schema
def npu_rotary_mul_backward(args: Arguments) -> tuple[Tensor, Tensor, Tensor]:
    arriving, x = args.grad.double(), args.self.double()
    # A quarter of a circle back is the negative of one ahead.
    back = -_turned(arriving * args.r2.double(), args.rotary_mode)
    of_x = arriving * args.r1.double() + back
    of_r1 = (arriving * x).sum_to_size(args.r1.shape)
    of_r2 = (arriving * _turned(x, args.rotary_mode)).sum_to_size(args.r2.shape)
    return of_x.to(args.self.dtype), of_r1.to(args.r1.dtype), of_r2.to(args.r2.dtype)


def _turned(x: Tensor, mode: str) -> Tensor:
    """Return x with its dimensions turned by a quarter of a circle, pairs as the mode has them."""
    y = torch.empty_like(x)
    size = x.shape[-1]
    if mode == "interleave":
        y[..., 0::2], y[..., 1::2] = -x[..., 1::2], x[..., 0::2]
        return y
    step = size // 2 if mode == "half" else size // 4
    for start in range(0, size, 2 * step):
        first, second = slice(start, start + step), slice(start + step, start + 2 * step)
        y[..., first], y[..., second] = -x[..., second], x[..., first]
    return y


@by_schema
def npu_confusion_transpose(args: Arguments) -> Tensor:
    if args.transpose_first:
        return torch.clone(args.self.permute(args.perm), memory_format=torch.contiguous_format).view(args.shape)
    return args.self.contiguous().view(args.shape).permute(args.perm).contiguous()


@by_schema
def npu_confusion_transpose_backward(args: Arguments) -> Tensor:
    inverse = sorted(range(len(args.perm)), key=args.perm.__getitem__)
    if args.transpose_first:
        return args.grad.permute(inverse).contiguous().view(args.shape)
    return args.grad.contiguous().view([args.shape[dim] for dim in args.perm]).permute(inverse).contiguous()


@by_schema
def npu_moe_gating_top_k_softmax(args: Arguments) -> tuple[Tensor, Tensor, Tensor]:
    rows = args.x.double().reshape(-1, args.x.shape[-1])
    weights = torch.exp(rows - rows.amax(-1, keepdim=True))
    weights = weights / weights.sum(-1, keepdim=True)
    values, chosen, places = [], [], []
    for number, row in enumerate(weights.tolist()):
        best = sorted(range(len(row)), key=lambda expert: (-row[expert], expert))[: args.k]
        is_finished = args.finished is not None and bool(args.finished.reshape(-1)[number])
        values.append([row[expert] for expert in best])
        chosen.append([args.x.shape[-1]] * args.k if is_finished else best)
        places.append([place * len(weights) + number for place in range(args.k)])
    shape = (*args.x.shape[:-1], args.k)
    return (
        torch.tensor(values, dtype=torch.float64).reshape(shape).to(args.x.dtype),
        torch.tensor(chosen, dtype=torch.int32).reshape(shape),
        torch.tensor(places, dtype=torch.int32).reshape(shape),
    )
