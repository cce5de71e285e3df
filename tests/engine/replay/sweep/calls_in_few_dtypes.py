"""Calls in dtypes that few functions take: integers, bools, complex numbers, narrow floats."""

from __future__ import annotations

from typing import Any

import torch

from tests.engine.replay.sweep.inputs import Draw, flags, index

INTEGER_FUNCTIONS = """add sub mul div floor_divide remainder eq lt gt maximum minimum
    bitwise_and bitwise_or bitwise_xor gcd""".split()


def integers(api: Any, x: Draw) -> None:
    op, method = api.Torch, api.Tensor
    for name in INTEGER_FUNCTIONS:
        op[name](x(3, 5), x(3, 5))
    for name in "neg abs sign bitwise_not sum prod max min argmax argmin logical_not square sqrt exp sigmoid".split():
        op[name](x(3, 5))
    op.cumsum(x(3, 5), 0)
    op.mean(x(3, 5), dtype=torch.float32)
    op.sum(x(3, 5), 1)
    op.sort(x(3, 5))
    op.argsort(x(3, 5), 1)
    op.topk(x(3, 5), 2)
    op.unique(x(3, 5))
    op.cat([x(3, 5), x(2, 5)])
    op.where(flags(3, 5), x(3, 5), x(3, 5))
    op.add(x(3, 5), torch.randn(3, 5))
    op.arange(10)
    op.zeros_like(x(3, 5))
    op.tril(x(3, 5))
    op.pow(x(3, 5), 2)
    op.matmul(x(3, 5), x(5, 4))
    method["__lshift__"](x(3, 5), 1)
    method["__rshift__"](x(3, 5), 1)
    method["__mod__"](x(3, 5), 3)
    method["__floordiv__"](x(3, 5), 2)
    method["__getitem__"](x(4, 6), (index(4, 3), slice(None)))
    method["__iadd__"](x(3, 5), 1)
    method.masked_fill(x(3, 5), flags(3, 5), 0)
    method.scatter_(x(3, 5), 1, torch.tensor([[0, 2], [1, 3], [4, 0]]), 1)
    method.float(x(3, 5))
    method.bool(x(3, 5))
    method.to(x(3, 5), torch.float16)


def bools(api: Any, x: Draw) -> None:
    op, method = api.Torch, api.Tensor
    for name in "logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_xor eq ne".split():
        op[name](flags(3, 5), flags(3, 5))
    for name in "logical_not bitwise_not any all sum count_nonzero nonzero argwhere cumsum".split():
        op[name](*([flags(3, 5)] if name != "cumsum" else [flags(3, 5), 1]))
    method["__and__"](flags(3, 5), flags(3, 5))
    method["__or__"](flags(3, 5), flags(3, 5))
    method["__invert__"](flags(3, 5))
    method["__getitem__"](flags(3, 5), 1)
    method.float(flags(3, 5))
    method.int(flags(3, 5))
    method.masked_fill(flags(3, 5), flags(3, 5), True)
    op.cat([flags(2, 3), flags(1, 3)])
    op.where(flags(3, 5), 1.0, 0.0)
    op.mul(flags(3, 5), torch.randn(3, 5))


def complexes(api: Any, x: Draw) -> None:
    op = api.Torch
    for name in "abs angle conj neg exp sin cos square sgn reciprocal sum mean prod tanh isnan".split():
        op[name](x(3, 5))
    for name in "add sub mul div eq".split():
        op[name](x(3, 5), x(3, 5))
    op.matmul(x(3, 5), x(5, 4))
    op.fft.fft(x(3, 8))
    op.linalg.norm(x(3, 5))
    op.linalg.inv(x(4, 4))
    op.cat([x(3, 5), x(2, 5)])
    op.view_as_real(x(3, 5))
    op.resolve_conj(x(3, 5))
    api.Tensor["__mul__"](x(3, 5), 2.0)
    api.Tensor["__getitem__"](x(3, 5), 1)


def narrow_floats(api: Any, x: Draw) -> None:
    method = api.Tensor
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        method.to(x.plain(3, 5), dtype=dtype)
    method.to(torch.randn(3, 5), dtype=x.dtype)
    method.clone(x.plain(3, 5))
    method.view(x.plain(3, 6), 2, 9)
    method["__getitem__"](x.plain(3, 5), 1)
    api.Torch.cat([x.plain(2, 3), x.plain(1, 3)])
    api.Torch.transpose(x.plain(2, 3), 0, 1)
    api.Torch.zeros_like(x.plain(2, 3))


def wide_integers(api: Any, x: Draw) -> None:
    method = api.Tensor
    method.to(x(3, 5), dtype=torch.float32)
    method.to(x(3, 5), dtype=torch.int64)
    method.clone(x(3, 5))
    method["__getitem__"](x(3, 5), slice(1, None))
    api.Torch.cat([x(2, 3), x(1, 3)])
    api.Torch.eq(x(3, 5), x(3, 5))
    api.Torch.full_like(x(3, 5), 7)


def half_complexes(api: Any, x: Draw) -> None:
    api.Torch.abs(x.plain(3, 5))
    api.Torch.real(x.plain(3, 5))
    api.Torch.view_as_real(x.plain(3, 5))
    api.Torch.mul(x.plain(3, 5), x.plain(3, 5))
    api.Tensor.clone(x.plain(3, 5))
    api.Tensor.to(x.plain(3, 5), dtype=torch.complex64)
