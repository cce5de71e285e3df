"""Activations and gates, each by its formula and by its derivative worked out by hand, computed in float64."""

from __future__ import annotations

import math

import torch
from torch import Tensor

_FAST = 1.702


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
