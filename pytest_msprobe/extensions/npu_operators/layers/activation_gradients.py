"""Gradients of activations, as torch_npu's autograd asks for them."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor


def _slope_of_gelu(x: Tensor, *, is_tanh: bool) -> Tensor:
    """Return the derivative of GELU by erf, or of its approximation by tanh (Hendrycks and Gimpel, 2016)."""
    if not is_tanh:
        below: Tensor = torch.special.ndtr(x)
        return below + x * torch.exp(-0.5 * x.square()) / math.sqrt(2 * math.pi)
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    slope = math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * x.square())
    tanh = torch.tanh(inner)
    return 0.5 * (1 + tanh) + 0.5 * x * (1 - tanh.square()) * slope


def npu_gelu_backward(grad_output: Tensor, self: Tensor, *, approximate: str = "none") -> Tensor:
    """Return the gradient of ``npu_gelu``; ``approximate`` is ``"none"`` or ``"tanh"``."""
    return grad_output * _slope_of_gelu(self, is_tanh=approximate == "tanh")


def npu_geglu_grad(
    grad_output: Tensor,
    self: Tensor,
    gelu: Tensor,
    dim: int = -1,
    approximate: int = 1,
    activate_left: bool = False,
) -> Tensor:
    """Return the gradient of ``npu_geglu``, as ``self``, from its second result ``gelu``."""
    left, right = self.chunk(2, dim)
    linear, activated = (right, left) if activate_left else (left, right)
    of_linear = grad_output * gelu
    of_activated = grad_output * linear * _slope_of_gelu(activated, is_tanh=approximate == 1)
    return torch.cat((of_activated, of_linear) if activate_left else (of_linear, of_activated), dim)


def npu_silu_backward(grad_output: Tensor, x0: Tensor, x1: Tensor) -> Tensor:
    """Return the gradient of ``npu_silu``: grad * (s + x0 s (1 - s)), s = sigmoid(x0); ``x1`` is its result."""
    s = torch.sigmoid(x0)
    return grad_output * (s + x0 * s * (1 - s))


def npu_mish_backward(grad: Tensor, input: Tensor) -> Tensor:
    """Return the gradient of ``npu_mish``: grad * (t + x s (1 - t^2)), t = tanh(softplus(x)), s = sigmoid(x)."""
    t = torch.tanh(F.softplus(input))
    return grad * (t + input * torch.sigmoid(input) * (1 - t.square()))
