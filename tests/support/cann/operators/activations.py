"""Activations, number by number; their slopes are differences of close results."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

_STEP = 1e-6


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


def _gelu(approximate: str | int) -> Callable[[float], float]:
    return _gelu_by_tanh if approximate in ("tanh", 1) else _gelu_by_erf


def _split(x: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    half = x.shape[dim] // 2
    return x.narrow(dim, 0, half).double(), x.narrow(dim, half, half).double()


def npu_silu_(self: Tensor) -> Tensor:
    return self.copy_(_each(_silu, self))


def npu_silu_backward(grad_output: Tensor, x0: Tensor, x1: Tensor) -> Tensor:
    return (grad_output.double() * _each(_slope(_silu), x0)).to(x0.dtype)


def npu_mish_backward(grad: Tensor, input: Tensor) -> Tensor:  # noqa: A002
    return (grad.double() * _each(_slope(_mish), input)).to(input.dtype)


def npu_gelu_backward(grad_output: Tensor, self: Tensor, *, approximate: str = "none") -> Tensor:
    return (grad_output.double() * _each(_slope(_gelu(approximate)), self)).to(self.dtype)


def npu_geglu_grad(
    grad_output: Tensor, self: Tensor, gelu: Tensor, dim: int = -1, approximate: int = 1, activate_left: bool = False
) -> Tensor:
    left, right = _split(self, dim)
    activated, other = (left, right) if activate_left else (right, left)
    grad = grad_output.double()
    of_other = grad * gelu.double()
    of_activated = grad * other * _each(_slope(_gelu(approximate)), activated)
    parts = (of_activated, of_other) if activate_left else (of_other, of_activated)
    return torch.cat(parts, dim).to(self.dtype)


def npu_gelu_mul(input: Tensor, *, approximate: str = "none") -> Tensor:  # noqa: A002
    left, right = _split(input, -1)
    return (_each(_gelu(approximate), left) * right).to(input.dtype)


def npu_clipped_swiglu(
    x: Tensor,
    *,
    group_index: Tensor | None = None,
    dim: int = -1,
    alpha: float = 1.702,
    limit: float = 7.0,
    bias: float = 1.0,
    interleaved: bool = True,
) -> Tensor:
    shape = list(x.shape)
    shape[dim] //= 2
    rows = x.double().reshape(*x.shape[: dim % x.dim()], -1)
    half = rows.shape[-1] // 2
    out = torch.zeros(*rows.shape[:-1], half, dtype=torch.float64)
    for place in range(half):
        first, second = (2 * place, 2 * place + 1) if interleaved else (place, half + place)
        gate = rows[..., first].clamp(max=limit)
        out[..., place] = _each(lambda a: a * _sigmoid(alpha * a), gate) * (
            rows[..., second].clamp(-limit, limit) + bias
        )
    return out.reshape(shape).to(x.dtype)
