"""Activations and gates by their formulas in float64, or number by number; slopes by hand, or by close results."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

_FAST = 1.702
_STEP = 1e-6


def npu_fast_gelu(self: Tensor) -> Tensor:
    x = self.double()
    return (x / (1 + torch.exp(-_FAST * x))).to(self.dtype)


fast_gelu = npu_fast_gelu


def npu_fast_gelu_backward(grad: Tensor, self: Tensor) -> Tensor:
    x = self.double()
    s = 1 / (1 + torch.exp(-_FAST * x))
    return (grad.double() * (s + _FAST * x * s * (1 - s))).to(self.dtype)


def _gelu(x: Tensor, approximate: bool) -> Tensor:
    if approximate:
        return x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2
    return x * torch.erfc(-x / math.sqrt(2)) / 2


def npu_gelu(self: Tensor, *, approximate: str = "none") -> Tensor:
    return _gelu(self.double(), approximate == "tanh").to(self.dtype)


def npu_geglu(self: Tensor, dim: int = -1, approximate: int = 1, activate_left: bool = False) -> tuple[Tensor, Tensor]:
    left, right = self.double().tensor_split(2, dim)
    factor, activated = (right, left) if activate_left else (left, right)
    gelu = _gelu(activated, approximate == 1)
    return (factor * gelu).to(self.dtype), gelu.to(self.dtype)


def npu_silu(self: Tensor) -> Tensor:
    x = self.double()
    return (x / (1 + torch.exp(-x))).to(self.dtype)


def npu_swiglu(self: Tensor, dim: int = -1) -> Tensor:
    gate, factor = self.double().tensor_split(2, dim)
    return (gate / (1 + torch.exp(-gate)) * factor).to(self.dtype)


def npu_swiglu_backward(grad_output: Tensor, self: Tensor, dim: int = -1) -> Tensor:
    gate, factor = self.double().tensor_split(2, dim)
    s, grad = 1 / (1 + torch.exp(-gate)), grad_output.double()
    of_gate = grad * factor * (s + gate * s * (1 - s))
    return torch.cat((of_gate, grad * gate * s), dim).to(self.dtype)


def npu_mish(self: Tensor) -> Tensor:
    x = self.double()
    # tanh(log(1 + e^x)) by powers of e^x.
    e = torch.exp(x.clamp(max=50))
    return (x * (e * e + 2 * e) / (e * e + 2 * e + 2)).to(self.dtype)


def npu_scaled_masked_softmax(x: Tensor, mask: Tensor, scale: float = 1, fixed_triu_mask: bool = False) -> Tensor:
    hidden = _hidden(x, mask, fixed_triu_mask)
    scores = torch.where(hidden, torch.tensor(-10000.0, dtype=torch.float64), x.double() * scale)
    weights = torch.exp(scores - scores.amax(-1, keepdim=True))
    return (weights / weights.sum(-1, keepdim=True)).to(x.dtype)


def npu_scaled_masked_softmax_backward(
    y_grad: Tensor, y: Tensor, mask: Tensor, scale: float = 1, fixed_triu_mask: bool = False
) -> Tensor:
    weights, grad = y.double(), y_grad.double()
    of_scores = weights * (grad - torch.einsum("...k,...k->...", weights, grad).unsqueeze(-1))
    return torch.where(_hidden(y, mask, fixed_triu_mask), 0.0, of_scores * scale).to(y.dtype)


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


def npu_silu_(self: Tensor) -> Tensor:
    return self.copy_(_each(_silu, self))


def npu_silu_backward(grad_output: Tensor, x0: Tensor, x1: Tensor) -> Tensor:
    return (grad_output.double() * _each(_slope(_silu), x0)).to(x0.dtype)


def npu_mish_backward(grad: Tensor, input: Tensor) -> Tensor:  # noqa: A002
    return (grad.double() * _each(_slope(_mish), input)).to(input.dtype)


def npu_gelu_backward(grad_output: Tensor, self: Tensor, *, approximate: str = "none") -> Tensor:
    return (grad_output.double() * _each(_slope(_gelu_of(approximate)), self)).to(self.dtype)


def npu_geglu_grad(
    grad_output: Tensor, self: Tensor, gelu: Tensor, dim: int = -1, approximate: int = 1, activate_left: bool = False
) -> Tensor:
    left, right = _split(self, dim)
    activated, other = (left, right) if activate_left else (right, left)
    grad = grad_output.double()
    of_other = grad * gelu.double()
    of_activated = grad * other * _each(_slope(_gelu_of(approximate)), activated)
    parts = (of_activated, of_other) if activate_left else (of_other, of_activated)
    return torch.cat(parts, dim).to(self.dtype)


def npu_gelu_mul(input: Tensor, *, approximate: str = "none") -> Tensor:  # noqa: A002
    left, right = _split(input, -1)
    return (_each(_gelu_of(approximate), left) * right).to(input.dtype)


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
