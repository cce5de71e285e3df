"""Norms, products, rotations, transpositions and choices of experts as layers of large models have them, in float64."""

from __future__ import annotations

import torch
from torch import Tensor


def npu_rms_norm(self: Tensor, gamma: Tensor, epsilon: float = 1e-06) -> tuple[Tensor, Tensor]:
    dims = tuple(range(-gamma.dim(), 0))
    x = self.double()
    rstd = 1 / torch.sqrt((x * x).mean(dims, keepdim=True) + epsilon)
    return (x * rstd * gamma.double()).to(self.dtype), rstd.float()


def npu_rms_norm_backward(dy: Tensor, self: Tensor, gamma: Tensor, rstd: Tensor) -> tuple[Tensor, Tensor]:
    dims = tuple(range(-gamma.dim(), 0))
    normed, scaled = self.double() * rstd.double(), dy.double() * gamma.double()
    of_x = rstd.double() * (scaled - normed * (scaled * normed).mean(dims, keepdim=True))
    of_gamma = (dy.double() * normed).reshape(-1, *gamma.shape).sum(0)
    return of_x.to(self.dtype), of_gamma.to(torch.float32)


def npu_layer_norm_eval(
    input: Tensor,  # noqa: A002
    normalized_shape: list[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-05,
) -> Tensor:
    x = input.double().flatten(-len(normalized_shape))
    deviation = x - x.mean(-1, keepdim=True)
    y = (deviation / torch.sqrt((deviation**2).mean(-1, keepdim=True) + eps)).reshape(input.shape)
    y = y if weight is None else y * weight.double()
    return (y if bias is None else y + bias.double()).to(input.dtype)


def npu_linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:  # noqa: A002
    y = torch.einsum("...i,oi->...o", input.double(), weight.double())
    return (y if bias is None else y + bias.double()).to(input.dtype)


def npu_linear_backward(grad: Tensor, input: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:  # noqa: A002
    of_input = torch.einsum("...o,oi->...i", grad.double(), weight.double())
    rows, arriving = input.double().flatten(0, -2), grad.double().flatten(0, -2)
    of_weight = torch.einsum("no,ni->oi", arriving, rows)
    return of_input.to(input.dtype), of_weight.to(weight.dtype)


def npu_rotary_mul(
    self: Tensor, r1: Tensor, r2: Tensor, rotary_mode: str = "half", rotate: Tensor | None = None
) -> Tensor:
    turned = _turned(self.double(), rotary_mode) if rotate is None else self.double() @ rotate.double()
    return (self.double() * r1.double() + turned * r2.double()).to(self.dtype)


def npu_rotary_mul_backward(
    grad: Tensor, self: Tensor, r1: Tensor, r2: Tensor, rotary_mode: str = "half"
) -> tuple[Tensor, Tensor, Tensor]:
    arriving, x = grad.double(), self.double()
    # A quarter of a circle back is the negative of one ahead.
    back = -_turned(arriving * r2.double(), rotary_mode)
    of_x = arriving * r1.double() + back
    of_r1 = (arriving * x).sum_to_size(r1.shape)
    of_r2 = (arriving * _turned(x, rotary_mode)).sum_to_size(r2.shape)
    return of_x.to(self.dtype), of_r1.to(r1.dtype), of_r2.to(r2.dtype)


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


def npu_confusion_transpose(self: Tensor, perm: list[int], shape: list[int], transpose_first: bool) -> Tensor:
    if transpose_first:
        return torch.clone(self.permute(perm), memory_format=torch.contiguous_format).view(shape)
    return self.contiguous().view(shape).permute(perm).contiguous()


def npu_confusion_transpose_backward(grad: Tensor, perm: list[int], shape: list[int], transpose_first: bool) -> Tensor:
    inverse = sorted(range(len(perm)), key=perm.__getitem__)
    if transpose_first:
        return grad.permute(inverse).contiguous().view(shape)
    return grad.contiguous().view([shape[dim] for dim in perm]).permute(inverse).contiguous()


def npu_moe_gating_top_k_softmax(
    x: Tensor, finished: Tensor | None = None, k: int = 1
) -> tuple[Tensor, Tensor, Tensor]:
    rows = x.double().reshape(-1, x.shape[-1])
    weights = torch.exp(rows - rows.amax(-1, keepdim=True))
    weights = weights / weights.sum(-1, keepdim=True)
    values, chosen, places = [], [], []
    for number, row in enumerate(weights.tolist()):
        best = sorted(range(len(row)), key=lambda expert: (-row[expert], expert))[:k]
        is_finished = finished is not None and bool(finished.reshape(-1)[number])
        values.append([row[expert] for expert in best])
        chosen.append([x.shape[-1]] * k if is_finished else best)
        places.append([place * len(weights) + number for place in range(k)])
    shape = (*x.shape[:-1], k)
    return (
        torch.tensor(values, dtype=torch.float64).reshape(shape).to(x.dtype),
        torch.tensor(chosen, dtype=torch.int32).reshape(shape),
        torch.tensor(places, dtype=torch.int32).reshape(shape),
    )
