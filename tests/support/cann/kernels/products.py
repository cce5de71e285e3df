"""Products of matrices and convolutions, in HF32 where torch_npu's switches say so, and gradients of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tests.support.cann.kernels.launch import Compute

#: The arguments of each product that a card rounds to HF32, by the operator's name; a bias is added unrounded.
_OF_MATMUL = {
    "mm": ("self", "mat2"),
    "bmm": ("self", "mat2"),
    "addmm": ("mat1", "mat2"),
    "addmm_": ("mat1", "mat2"),
    "baddbmm": ("batch1", "batch2"),
    "baddbmm_": ("batch1", "batch2"),
    "mv": ("self", "vec"),
    "addmv": ("mat", "vec"),
    "dot": ("self", "tensor"),
    "matmul": ("self", "other"),
    "matmul_backward": ("grad", "self", "other"),
}
_OF_CONVOLUTION = dict.fromkeys(
    ("convolution", "_convolution", "convolution_overrideable", "npu_conv2d", "npu_conv3d"), ("input", "weight")
)
_STORED_BITS = 0xFFF


def in_hf32(name: str, operator: torch._ops.OpOverload, compute: Compute) -> Compute | None:
    """Return what computes a product with operands as HF32 has them where that is on; None for another operator."""
    switch, rounded = ("matmul", _OF_MATMUL.get(name)) if name in _OF_MATMUL else ("conv", _OF_CONVOLUTION.get(name))
    if rounded is None:
        return None
    names = [argument.name for argument in operator._schema.arguments]

    def computed(*args: Any, **kwargs: Any) -> Any:
        if is_hf32(switch):
            args = tuple(_rounded(arg) if name in rounded else arg for name, arg in zip(names, args, strict=False))
            kwargs = {name: _rounded(arg) if name in rounded else arg for name, arg in kwargs.items()}
        return compute(*args, **kwargs)

    return computed


def is_hf32(switch: str) -> bool:
    """Return whether torch_npu says that products of "matmul" or "conv" are made in HF32."""
    return bool(getattr(torch.npu, switch).allow_hf32)  # type: ignore[attr-defined,unused-ignore]


def matmul_backward(grad: Tensor, self: Tensor, other: Tensor, mask: list[bool]) -> tuple[Tensor | None, Tensor | None]:
    """Return the gradients of a product of matrices, vectors or batches of them; None where none is asked for."""
    if self.dim() == 1 and other.dim() == 1:
        return grad * other if mask[0] else None, grad * self if mask[1] else None
    left = self.unsqueeze(0) if self.dim() == 1 else self
    right = other.unsqueeze(-1) if other.dim() == 1 else other
    arriving = grad.unsqueeze(-2) if self.dim() == 1 else grad
    arriving = arriving.unsqueeze(-1) if other.dim() == 1 else arriving
    of_left = arriving.matmul(right.transpose(-1, -2)).sum_to_size(left.shape).reshape(self.shape) if mask[0] else None
    of_right = left.transpose(-1, -2).matmul(arriving).sum_to_size(right.shape) if mask[1] else None
    return of_left, None if of_right is None else of_right.reshape(other.shape)


def convolution_backward(
    grad_output: Tensor, operand: Tensor, weight: Tensor, bias_sizes: list[int] | None, *geometry: Any
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Return the gradients of a convolution; that of the bias is a sum, which no mode rounds."""
    *shape, mask = geometry
    gradients = torch.ops.aten.convolution_backward.default
    operands = [grad_output, operand, weight]
    if is_hf32("conv"):
        operands = [_rounded(operand) for operand in operands]
    products = gradients(*operands, bias_sizes, *shape, [mask[0], mask[1], False])
    sums = (
        gradients(grad_output, operand, weight, bias_sizes, *shape, [False, False, mask[2]]) if mask[2] else (None,) * 3
    )
    return products[0], products[1], sums[2]


def convolution_backward_overrideable(
    grad_output: Tensor, operand: Tensor, weight: Tensor, *geometry: Any
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Return the gradients of a convolution that torch leaves to the device."""
    transposed, groups = geometry[3], geometry[5]
    count = weight.shape[1] * groups if transposed else weight.shape[0]
    return convolution_backward(grad_output, operand, weight, [count], *geometry)


def with_output_dtype(name: str) -> Compute:
    """Return what computes a product whose result has a dtype of its own, such as ``mm.dtype``."""
    operator = getattr(torch.ops.aten, name).default

    def compute(*args: Any, out: Tensor | None = None, **kwargs: Any) -> Tensor:
        *operands, dtype = args
        result = operator(
            *(operand.to(dtype) if isinstance(operand, Tensor) else operand for operand in operands), **kwargs
        )
        return result if out is None else out.copy_(result)

    return compute


def _rounded(operand: Any) -> Any:
    """Return float32 rounded to the 11 stored bits of HF32, halves up in magnitude; anything else as it is."""
    if not isinstance(operand, Tensor) or operand.dtype is not torch.float32:
        return operand
    bits = operand.contiguous().view(torch.int32)
    near = ((bits + (_STORED_BITS + 1) // 2) & ~_STORED_BITS).view(torch.float32)
    return torch.where(operand.isfinite(), near, operand)


COMPUTED: dict[str, Callable[..., Any]] = {
    "matmul_backward": matmul_backward,
    "convolution_backward": convolution_backward,
    "convolution_backward_overrideable": convolution_backward_overrideable,
    "convolution_overrideable": torch.ops.aten.convolution.default,
    **{
        f"{name}.{overload}": with_output_dtype(name)
        for name in ("mm", "bmm", "addmm", "baddbmm")
        for overload in ("dtype", "dtype_out")
    },
}
