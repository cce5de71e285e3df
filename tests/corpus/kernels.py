"""What several variants are made of: matrix products and norms taken apart, arguments of convolutions, rounding."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

from tests.corpus.fault import Launch, plain_name, substitute

Multiply: TypeAlias = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def product(launch: Launch, multiply: Multiply) -> torch.Tensor:
    """Run a matrix product with another multiplication of matrices, in both directions.

    That is linear, matmul, mm, bmm, addmm and baddbmm without factors of their own, or an einsum that is a matmul.
    ``multiply`` gets operands of two dimensions or more and returns float32 for narrower ones; bias and rounding
    come after it.
    """
    bias: Any = None
    name = plain_name(launch.api)
    if {"alpha", "beta"} & launch.kwargs.keys():
        return launch.run()  # type: ignore[no-any-return]
    if name == "linear":
        x, weight, bias = launch.argument(0, "input"), launch.argument(1, "weight"), launch.argument(2, "bias")
        left, right, shape = x.reshape(-1, x.shape[-1]), weight.mT, (*x.shape[:-1], weight.shape[0])
    elif name in ("addmm", "baddbmm"):
        factors = ("mat1", "mat2") if name == "addmm" else ("batch1", "batch2")
        bias, left, right = (launch.argument(i, key) for i, key in enumerate(("input", *factors)))
        shape = (*left.shape[:-1], right.shape[-1])
    else:
        first, second = (1, 2) if name == "einsum" else (0, 1)
        left, right = launch.argument(first, "input"), launch.argument(second, "other" if name == "matmul" else "mat2")
        if min(left.dim(), right.dim()) < 2:
            return launch.run()  # type: ignore[no-any-return]
        shape = (*torch.broadcast_shapes(left.shape[:-2], right.shape[:-2]), left.shape[-2], right.shape[-1])
    result = _Product.apply(left, right, multiply)  # type: ignore[no-untyped-call]
    if bias is not None:
        result = result + bias
    return result.to(left.dtype).reshape(shape)


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, left: torch.Tensor, right: torch.Tensor, multiply: Multiply) -> torch.Tensor:
        ctx.save_for_backward(left, right)
        ctx.multiply = multiply
        return multiply(left, right)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        left, right = ctx.saved_tensors
        grad = grad.to(left.dtype)
        of_left = ctx.multiply(grad, right.mT).sum_to_size(left.shape).to(left.dtype)
        return of_left, ctx.multiply(left.mT, grad).sum_to_size(right.shape).to(right.dtype), None


@dataclass(frozen=True, slots=True)
class Convolution:
    """The arguments of a two-dimensional convolution."""

    x: torch.Tensor
    weight: torch.Tensor
    bias: torch.Tensor | None
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]
    groups: int


def convolution(launch: Launch) -> Convolution:
    """Return the arguments of a conv2d launch."""
    x, weight, bias = launch.argument(0, "input"), launch.argument(1, "weight"), launch.argument(2, "bias")
    defaults = (("stride", 1), ("padding", 0), ("dilation", 1))
    pairs = (launch.argument(i, name, default) for i, (name, default) in enumerate(defaults, 3))
    stride, padding, dilation = ((size, size) if isinstance(size, int) else tuple(size) for size in pairs)
    return Convolution(x, weight, bias, stride, padding, dilation, launch.argument(6, "groups", 1))


@dataclass(frozen=True, slots=True)
class Norm:
    """The arguments of a normalization; ``dims`` are those it averages over, the rest broadcasts against the input."""

    x: torch.Tensor
    dims: tuple[int, ...]
    weight: Any
    bias: Any
    eps: float

    def applied(self, centred: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        """Return the centred input times ``scale``, weight and bias."""
        return centred * scale * self.weight + self.bias


def layer_norm(launch: Launch) -> Norm:
    """Return the arguments of a layer_norm launch."""
    weight, bias = launch.argument(2, "weight"), launch.argument(3, "bias")
    dims = tuple(range(-len(launch.argument(1, "normalized_shape")), 0))
    eps = launch.argument(4, "eps", 1e-5)
    return Norm(launch.args[0], dims, 1 if weight is None else weight, 0 if bias is None else bias, eps)


def batch_norm(launch: Launch) -> Norm:
    """Return the arguments of a batch_norm launch."""
    x = launch.args[0]
    dims = tuple(dim for dim in range(x.dim()) if dim != 1)
    spread = [1, -1, *(1 for _ in dims[1:])]
    weight, bias = launch.argument(3, "weight"), launch.argument(4, "bias")
    return Norm(x, dims, weight.view(spread), bias.view(spread), launch.argument(7, "eps", 1e-5))


def working(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor in the dtype that sums are kept in: float32 for narrower formats."""
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


def rounded(tensor: torch.Tensor, bits: int, *, truncate: bool = False) -> torch.Tensor:
    """Return float32 values rounded (to nearest, or toward zero) to so many stored bits of the significand."""
    drop = 23 - bits
    whole = tensor.contiguous().view(torch.int32)
    if not truncate:
        whole = whole + (1 << (drop - 1))
    return (whole >> drop << drop).view(torch.float32)


def through(tensor: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """Return a float32 tensor with changed values that gradients pass; anything else unchanged."""
    if not isinstance(tensor, torch.Tensor) or tensor.dtype != torch.float32:
        return tensor
    return substitute(tensor, change(tensor.detach()))
