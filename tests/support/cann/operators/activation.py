"""Activations and gates by their formulas in float64, or number by number; slopes by hand, or by close results."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from tests.support.cann.operators.by_schema import Arguments, by_schema

_FAST = 1.702
_STEP = 1e-6


@by_schema
def npu_fast_gelu(args: Arguments) -> Tensor:
    x = args.self.double()
    return (x / (1 + torch.exp(-_FAST * x))).to(args.self.dtype)


fast_gelu = npu_fast_gelu


@by_schema
def npu_fast_gelu_backward(args: Arguments) -> Tensor:
    x = args.self.double()
    s = 1 / (1 + torch.exp(-_FAST * x))
    return (args.grad.double() * (s + _FAST * x * s * (1 - s))).to(args.self.dtype)


def _gelu(x: Tensor, approximate: bool) -> Tensor:
    if approximate:
        return x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2
    return x * torch.erfc(-x / math.sqrt(2)) / 2


@by_schema
def npu_gelu(args: Arguments) -> Tensor:
    return _gelu(args.self.double(), args.approximate == "tanh").to(args.self.dtype)


@by_schema
def npu_geglu(args: Arguments) -> tuple[Tensor, Tensor]:
    left, right = args.self.double().tensor_split(2, args.dim)
    factor, activated = (right, left) if args.activate_left else (left, right)
    gelu = _gelu(activated, args.approximate == 1)
    return (factor * gelu).to(args.self.dtype), gelu.to(args.self.dtype)


@by_schema
def npu_silu(args: Arguments) -> Tensor:
    x = args.self.double()
    return (x / (1 + torch.exp(-x))).to(args.self.dtype)


@by_schema
def npu_swiglu(args: Arguments) -> Tensor:
    gate, factor = args.self.double().tensor_split(2, args.dim)
    return (gate / (1 + torch.exp(-gate)) * factor).to(args.self.dtype)


@by_schema
def npu_swiglu_backward(args: Arguments) -> Tensor:
    gate, factor = args.self.double().tensor_split(2, args.dim)
    s, grad = 1 / (1 + torch.exp(-gate)), args.grad_output.double()
    of_gate = grad * factor * (s + gate * s * (1 - s))
    return torch.cat((of_gate, grad * gate * s), args.dim).to(args.self.dtype)


@by_schema
def npu_mish(args: Arguments) -> Tensor:
    x = args.self.double()
    # tanh(log(1 + e^x)) by powers of e^x.
    e = torch.exp(x.clamp(max=50))
    return (x * (e * e + 2 * e) / (e * e + 2 * e + 2)).to(args.self.dtype)


@by_schema
def npu_scaled_masked_softmax(args: Arguments) -> Tensor:
    hidden = _hidden(args.x, args.mask, args.fixed_triu_mask)
    scores = torch.where(hidden, torch.tensor(-10000.0, dtype=torch.float64), args.x.double() * args.scale)
    weights = torch.exp(scores - scores.amax(-1, keepdim=True))
    return (weights / weights.sum(-1, keepdim=True)).to(args.x.dtype)


@by_schema
def npu_scaled_masked_softmax_backward(args: Arguments) -> Tensor:
    weights, grad = args.y.double(), args.y_grad.double()
    of_scores = weights * (grad - torch.einsum("...k,...k->...", weights, grad).unsqueeze(-1))
    return torch.where(_hidden(args.y, args.mask, args.fixed_triu_mask), 0.0, of_scores * args.scale).to(args.y.dtype)


def _hidden(x: Tensor, mask: Tensor, fixed_triu_mask: bool) -> Tensor:
    if not fixed_triu_mask:
        return mask != 0
    rows, columns = torch.arange(x.shape[-2]), torch.arange(x.shape[-1])
    return columns[None, :] > rows[:, None]


def _each(function: Callable[[float], float], x: Tensor) -> Tensor:
    return torch.tensor([function(number) for number in x.double().flatten().tolist()]).double().reshape(x.shape)


def _slope(function: Callable[[float], float]) -> Callable[[float], float]:
    return lambda x: (function(x + _STEP) - function(x - _STEP)) / (2 * _STEP)


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def _silu(x: float) -> float:
    return x * _sigmoid(x)


def _mish(x: float) -> float:
    return x * math.tanh(math.log1p(math.exp(x)))


def _gelu_by_erf(x: float) -> float:
    return x * (1 + math.erf(x / math.sqrt(2))) / 2


def _gelu_by_tanh(x: float) -> float:
    return x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x))) / 2


def _gelu_of(approximate: str | int) -> Callable[[float], float]:
    return _gelu_by_tanh if approximate in ("tanh", 1) else _gelu_by_erf


def _split(x: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    half = x.shape[dim] // 2
    return x.narrow(dim, 0, half).double(), x.narrow(dim, half, half).double()


@by_schema
def npu_silu_(args: Arguments) -> Tensor:
    return args.self.copy_(_each(_silu, args.self))


@by_schema
def npu_silu_backward(args: Arguments) -> Tensor:
    return (args.grad_output.double() * _each(_slope(_silu), args.x0)).to(args.x0.dtype)


@by_schema
def npu_mish_backward(args: Arguments) -> Tensor:
    return (args.grad.double() * _each(_slope(_mish), args.input)).to(args.input.dtype)


@by_schema
def npu_gelu_backward(args: Arguments) -> Tensor:
    return (args.grad_output.double() * _each(_slope(_gelu_of(args.approximate)), args.self)).to(args.self.dtype)


@by_schema
def npu_geglu_grad(args: Arguments) -> Tensor:
    left, right = _split(args.self, args.dim)
    activated, other = (left, right) if args.activate_left else (right, left)
    grad = args.grad_output.double()
    of_other = grad * args.gelu.double()
    of_activated = grad * other * _each(_slope(_gelu_of(args.approximate)), activated)
    parts = (of_activated, of_other) if args.activate_left else (of_other, of_activated)
    return torch.cat(parts, args.dim).to(args.self.dtype)


@by_schema
def npu_gelu_mul(args: Arguments) -> Tensor:
    left, right = _split(args.input, -1)
    return (_each(_gelu_of(args.approximate), left) * right).to(args.input.dtype)


@by_schema
def npu_clipped_swiglu(args: Arguments) -> Tensor:
    shape = list(args.x.shape)
    shape[args.dim] //= 2
    rows = args.x.double().reshape(*args.x.shape[: args.dim % args.x.dim()], -1)
    half = rows.shape[-1] // 2
    out = torch.zeros(*rows.shape[:-1], half, dtype=torch.float64)
    for place in range(half):
        first, second = (2 * place, 2 * place + 1) if args.interleaved else (place, half + place)
        gate = rows[..., first].clamp(max=args.limit)
        out[..., place] = _each(lambda a: a * _sigmoid(args.alpha * a), gate) * (
            rows[..., second].clamp(-args.limit, args.limit) + args.bias
        )
    return out.reshape(shape).to(args.x.dtype)
