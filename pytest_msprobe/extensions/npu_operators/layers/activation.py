"""Activations: fast GELU, GELU, GEGLU, Mish, SiLU, SwiGLU and their kin."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from pytest_msprobe.engine.replay.ops.operators import golden
from pytest_msprobe.extensions.npu_operators.arguments import refuse

# CANN's definition: x * sigmoid(1.702 x).
_FAST_GELU_SLOPE = 1.702


@golden("NPU.npu_fast_gelu")
def npu_fast_gelu(self: Tensor) -> Tensor:
    """Return x * sigmoid(1.702 x), the sigmoid approximation of GELU (Hendrycks and Gimpel, 2016)."""
    return self * torch.sigmoid(_FAST_GELU_SLOPE * self)


fast_gelu = golden("NPU.fast_gelu")(npu_fast_gelu)


@golden("Aten.npu_fast_gelu_backward")
def npu_fast_gelu_backward(grad: Tensor, self: Tensor) -> Tensor:
    """Return the gradient of :func:`npu_fast_gelu`: grad * (s + 1.702 x s (1 - s)) with s = sigmoid(1.702 x)."""
    s = torch.sigmoid(_FAST_GELU_SLOPE * self)
    return grad * (s + _FAST_GELU_SLOPE * self * s * (1 - s))


@golden("NPU.npu_gelu")
def npu_gelu(self: Tensor, *, approximate: str = "none") -> Tensor:
    """Return GELU; ``approximate`` is ``"none"`` (by erf) or ``"tanh"``."""
    return F.gelu(self, approximate=approximate)


@golden("NPU.npu_geglu")
def npu_geglu(self: Tensor, dim: int = -1, approximate: int = 1, activate_left: bool = False) -> tuple[Tensor, Tensor]:
    """Return (a * gelu(b), gelu(b)) for the halves a, b of ``self`` along ``dim``.

    ``approximate`` is 0 for erf, 1 for tanh; ``activate_left`` puts the GELU on the first half instead.
    """
    left, right = self.chunk(2, dim)
    linear, activated = (right, left) if activate_left else (left, right)
    gelu = F.gelu(activated, approximate="tanh" if approximate == 1 else "none")
    return linear * gelu, gelu.detach()


@golden("NPU.npu_mish")
def npu_mish(self: Tensor) -> Tensor:
    """Return x * tanh(softplus(x)) (Misra, 2019)."""
    return F.mish(self)


@golden("NPU.npu_silu")
def npu_silu(self: Tensor) -> Tensor:
    """Return x * sigmoid(x)."""
    return F.silu(self)


@golden("NPU.npu_silu_")
def npu_silu_(self: Tensor) -> Tensor:
    """Return x * sigmoid(x), written into x."""
    return F.silu(self, inplace=True)


@golden("NPU.npu_swiglu")
def npu_swiglu(self: Tensor, dim: int = -1) -> Tensor:
    """Return silu(a) * b for the halves a, b of ``self`` along ``dim`` (Shazeer, 2020)."""
    a, b = self.chunk(2, dim)
    return F.silu(a) * b


@golden("Aten.npu_swiglu_backward")
def npu_swiglu_backward(grad_output: Tensor, self: Tensor, dim: int = -1) -> Tensor:
    """Return the gradient g of :func:`npu_swiglu`, as ``self``: (g b s (1 + a (1 - s)), g a s), s = sigmoid(a)."""
    a, b = self.chunk(2, dim)
    s = torch.sigmoid(a)
    return torch.cat((grad_output * b * s * (1 + a * (1 - s)), grad_output * a * s), dim)


@golden("NPU.npu_gelu_mul")
def npu_gelu_mul(input: Tensor, *, approximate: str = "none") -> Tensor:
    """Return gelu(a) * b for halves a, b of the last dimension; ``approximate``: ``"none"`` (by erf) or ``"tanh"``."""
    a, b = input.chunk(2, -1)
    return F.gelu(a, approximate=approximate) * b


@golden("NPU.npu_clipped_swiglu")
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
    """Return a * sigmoid(alpha a) * (b + bias), a clipped from above at ``limit`` and b to [-limit, limit].

    The dimensions from ``dim`` on are one: a are its even elements and b the odd ones, or, without ``interleaved``, its
    halves. Raises NotImplementedError for ``group_index``, behind whose groups nothing is promised.
    """
    refuse("npu_clipped_swiglu", group_index=group_index)
    flat = x.flatten(dim)
    a, b = (flat[..., ::2], flat[..., 1::2]) if interleaved else flat.chunk(2, -1)
    a, b = a.clamp(max=limit), b.clamp(-limit, limit)
    shape = list(x.shape)
    shape[dim] //= 2
    return (a * torch.sigmoid(alpha * a) * (b + bias)).reshape(shape)


# a finite number, not -inf: a row without any visible element is the uniform distribution on the device too
_MASKED = -10000.0


def _upper_triangle(x: Tensor) -> Tensor:
    return torch.ones(x.shape[-2:], dtype=torch.bool, device=x.device).triu(1)


@golden("NPU.npu_scaled_masked_softmax")
def npu_scaled_masked_softmax(x: Tensor, mask: Tensor, scale: float = 1.0, fixed_triu_mask: bool = False) -> Tensor:
    """Return the softmax over the last dimension of x * scale, with -10000 where ``mask`` is True.

    ``fixed_triu_mask`` takes the strict upper triangle of the last two dimensions for the mask instead.
    """
    hidden = _upper_triangle(x) if fixed_triu_mask else mask.bool()
    return torch.softmax((x * scale).masked_fill(hidden, _MASKED), -1)


@golden("Aten.npu_scaled_masked_softmax_backward")
def npu_scaled_masked_softmax_backward(
    y_grad: Tensor, y: Tensor, mask: Tensor, scale: float = 1.0, fixed_triu_mask: bool = False
) -> Tensor:
    """Return the gradient of :func:`npu_scaled_masked_softmax` for x from its output ``y``; 0 where masked."""
    hidden = _upper_triangle(y) if fixed_triu_mask else mask.bool()
    grad = y * (y_grad - (y_grad * y).sum(-1, keepdim=True)) * scale
    return grad.masked_fill(hidden, 0.0)


def _slope_of_gelu(x: Tensor, *, is_tanh: bool) -> Tensor:
    """Return the derivative of GELU by erf, or of its approximation by tanh (Hendrycks and Gimpel, 2016)."""
    if not is_tanh:
        below: Tensor = torch.special.ndtr(x)
        return below + x * torch.exp(-0.5 * x.square()) / math.sqrt(2 * math.pi)
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    slope = math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * x.square())
    tanh = torch.tanh(inner)
    return 0.5 * (1 + tanh) + 0.5 * x * (1 - tanh.square()) * slope


@golden("Aten.npu_gelu_backward")
def npu_gelu_backward(grad_output: Tensor, self: Tensor, *, approximate: str = "none") -> Tensor:
    """Return the gradient of ``npu_gelu``; ``approximate`` is ``"none"`` or ``"tanh"``."""
    return grad_output * _slope_of_gelu(self, is_tanh=approximate == "tanh")


@golden("Aten.npu_geglu_grad")
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


@golden("Aten.npu_silu_backward")
def npu_silu_backward(grad_output: Tensor, x0: Tensor, x1: Tensor) -> Tensor:
    """Return the gradient of ``npu_silu``: grad * (s + x0 s (1 - s)), s = sigmoid(x0); ``x1`` is its result."""
    s = torch.sigmoid(x0)
    return grad_output * (s + x0 * s * (1 - s))


@golden("Aten.npu_mish_backward")
def npu_mish_backward(grad: Tensor, input: Tensor) -> Tensor:
    """Return the gradient of ``npu_mish``: grad * (t + x s (1 - t^2)), t = tanh(softplus(x)), s = sigmoid(x)."""
    t = torch.tanh(F.softplus(input))
    return grad * (t + input * torch.sigmoid(input) * (1 - t.square()))
