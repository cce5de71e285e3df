"""Products of quantized matrices, computed independently of the golden definitions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from tests.support.cann.operators.by_schema import Arguments, by_schema
from tests.support.cann.packed import (
    Array,
    activated,
    by_blocks,
    by_halves,
    cut,
    exponents,
    floats,
    in_dtype,
    read_scale,
    to_int8,
    whole,
)

_BY_NUMBER = {1: torch.int8, 3: torch.int32, 5: torch.float16, 6: torch.float32, 15: torch.bfloat16}


def _dtype(dtype: torch.dtype | int | None, default: torch.dtype) -> torch.dtype:
    if dtype is None:
        return default
    return dtype if isinstance(dtype, torch.dtype) else _BY_NUMBER[dtype]


def _of_blocks(x: Array, w: Array, x_scale: Tensor, w_scale: Tensor, groups: Sequence[int] | None) -> Array:
    if x_scale.dim() == 3:
        left = exponents(x_scale).reshape(len(x), -1)
        right = np.moveaxis(exponents(w_scale), -1, 1).reshape(-1, w.shape[1])
        return by_blocks(x, w, left, right, 32, group_m=1, group_n=1)
    left, right = floats(x_scale), floats(w_scale)
    group_m, group_n, group_k = groups or (0, 0, 0)
    group_k = group_k or x.shape[1] // right.shape[0]
    group_m, group_n = group_m or len(x) // len(left), group_n or w.shape[1] // right.shape[1]
    return by_blocks(x, w, left, right, group_k, group_m=group_m, group_n=group_n)


@by_schema
def npu_quant_matmul(args: Arguments) -> Tensor:
    """Return the product of quantized operands with its scales, offset and bias."""
    dtype = _dtype(args.output_dtype, torch.int8)
    x = whole(args.x1)
    w = whole(args.x2, x.shape[-1])
    if dtype is torch.int32:
        return torch.from_numpy((np.matmul(x, w) + (0 if args.bias is None else floats(args.bias))).astype(np.int32))
    factor, packed = read_scale(args.scale)
    is_mixed = args.x2.dtype is torch.int32 and args.x1.dtype is torch.int8
    is_of_blocks = (
        args.pertoken_scale is not None and args.pertoken_scale.dim() > 1 and args.pertoken_scale.shape[-1] > 1
    )
    if is_mixed and args.offset is not None and args.pertoken_scale is not None:
        return in_dtype(
            by_halves(x, w, factor, floats(args.offset)) * floats(args.pertoken_scale).reshape(-1, 1), dtype
        )
    if args.pertoken_scale is not None and is_of_blocks:
        out = _of_blocks(x, w, args.pertoken_scale, args.scale, args.group_sizes)
        return in_dtype(out + (0 if args.bias is None else floats(args.bias)), dtype)
    if args.y_scale is not None:
        size = w.shape[0] // factor.shape[0]
        return in_dtype(np.matmul(x, w * np.repeat(factor, size, 0)) * read_scale(args.y_scale)[0], dtype)
    return _finished(
        np.matmul(x, w), factor, packed, args.x1, args.scale, args.offset, args.pertoken_scale, args.bias, dtype
    )


def _finished(
    product: Array,
    factor: Array,
    packed: Array,
    x1: Tensor,
    scale: Tensor,
    offset: Tensor | None,
    pertoken_scale: Tensor | None,
    bias: Tensor | None,
    dtype: torch.dtype,
) -> Tensor:
    is_packed_inside = scale.dtype is torch.float32 and pertoken_scale is None and not x1.is_floating_point()
    is_packed_inside = is_packed_inside and dtype in (torch.int8, torch.float16)
    if is_packed_inside:
        factor = np.vectorize(cut)(factor)
    goes_before = bias is not None and (bias.dtype is torch.int32 or x1.is_floating_point())
    if bias is not None and goes_before:
        product = product + floats(bias)
    out = product * factor
    if pertoken_scale is not None:
        token = floats(pertoken_scale)
        out = out * (token.reshape(-1, 1) if token.size > 1 else token)
    if bias is not None and not goes_before:
        out = out + floats(bias)
    if offset is not None:
        out = out + (np.clip(np.rint(floats(offset)), -256, 255) if is_packed_inside else floats(offset))
    elif dtype is torch.int8:
        out = out + packed
    return to_int8(out) if dtype is torch.int8 else in_dtype(out, dtype)


@by_schema
def npu_weight_quant_batchmatmul(args: Arguments) -> Tensor:
    """Return the product of floats with a weight of whole numbers, quantized where it is to be."""
    values, (rows, columns) = floats(args.x), (args.x.shape[1], 0)
    w = whole(args.weight, rows)
    columns = w.shape[1]
    scale, _ = read_scale(args.antiquant_scale)
    shift = np.zeros(1) if args.antiquant_offset is None else floats(args.antiquant_offset)
    out = np.zeros((len(values), columns))
    for k in range(rows):
        group = k // args.antiquant_group_size if args.antiquant_group_size else 0
        of_row = [np.atleast_2d(each)[min(group, len(np.atleast_2d(each)) - 1)] for each in (scale, shift)]
        out += np.outer(values[:, k], (w[k] + of_row[1]) * of_row[0])
    out = out + (0 if args.bias is None else floats(args.bias))
    if args.quant_scale is None:
        return in_dtype(out, args.x.dtype)
    factor, packed = read_scale(args.quant_scale)
    return to_int8(out * factor + (packed if args.quant_offset is None else floats(args.quant_offset)))


@by_schema
def npu_quant_matmul_gelu(args: Arguments) -> Tensor:
    """Return the activated product of quantized operands."""
    x = whole(args.x1)
    product = np.matmul(x, whole(args.x2, x.shape[-1]))
    before = 0 if args.bias is None or args.bias.is_floating_point() else floats(args.bias)
    behind = 0 if args.bias is None or not args.bias.is_floating_point() else floats(args.bias)
    scaled = (product + before) * floats(args.x2_scale) * floats(args.x1_scale).reshape(-1, 1) + behind
    dtype = torch.bfloat16 if args.x2_scale.dtype is torch.bfloat16 else torch.float16
    return in_dtype(activated(args.approximate or "gelu_erf", scaled), dtype)


@by_schema
def npu_quant_matmul_reduce_sum(args: Arguments) -> Tensor:
    """Return the sum of the scaled products of a batch."""
    out = np.zeros((args.x1.shape[1], args.x2.shape[2]))
    for i in range(args.x1.shape[0]):
        token = 1.0 if args.x1_scale is None else floats(args.x1_scale)[i][:, None]
        out += (
            floats(args.x1[i])
            @ floats(args.x2[i])
            * token
            * (1.0 if args.x2_scale is None else floats(args.x2_scale)[None])
        )
    return in_dtype(out, torch.bfloat16)


def quantized(x: Tensor, smooth_scale: Tensor | None, x_scale: Tensor | None) -> tuple[Array, Array]:
    """Return the rows of x as whole numbers of 8 bits, and their scales."""
    values = floats(x) * (1.0 if smooth_scale is None else floats(smooth_scale))
    scale = np.abs(values).max(1) / 127 if x_scale is None else np.broadcast_to(floats(x_scale), (len(values),))
    return np.clip(np.rint(values / np.where(scale == 0, 1.0, scale)[:, None]), -128, 127), scale


@by_schema
def npu_quant_matmul_dequant(args: Arguments) -> Tensor:
    """Return the product of rows that are quantized on the way."""
    rows, scale = quantized(args.x, args.smooth_scale, args.x_scale)
    factor, _ = read_scale(args.weight_scale)
    product = (rows @ floats(args.quantized_weight).T + (0 if args.bias is None else floats(args.bias))) * factor
    return in_dtype(product * scale[:, None] if args.weight_scale.is_floating_point() else product, torch.float16)


@by_schema
def npu_transpose_quant_batchmatmul(args: Arguments) -> Tensor:
    """Return one product for each batch, of permuted operands with their scales."""
    order_x, order_w = tuple(args.perm_x1 or (0, 1, 2)), tuple(args.perm_x2 or (0, 1, 2))
    x, w = floats(args.x1).transpose(order_x), floats(args.x2).transpose(order_w)
    outs = []
    for b in range(len(x)):
        if args.x1_scale is not None and args.x2_scale is not None and args.x1_scale.dim() == 4:
            left = exponents(args.x1_scale).transpose(*order_x, 3)[b].reshape(x.shape[1], -1)
            right = np.moveaxis(exponents(args.x2_scale).transpose(*order_w, 3)[b], -1, 1).reshape(-1, w.shape[2])
            outs.append(by_blocks(x[b], w[b], left, right, 32, group_m=1, group_n=1))
        else:
            rows = 1.0 if args.x1_scale is None else floats(args.x1_scale)[:, None]
            outs.append(x[b] @ w[b] * rows * (1.0 if args.x2_scale is None else floats(args.x2_scale)[None]))
    found = np.stack(outs).transpose(tuple(args.perm_y or (1, 0, 2)))
    if args.batch_split_factor not in (None, 1):
        found = np.moveaxis(found.reshape(found.shape[0], args.batch_split_factor, -1), 1, 0)
    return in_dtype(found, _dtype(args.dtype, torch.float16))


@by_schema
def npu_add_quant_matmul(args: Arguments) -> Tensor:
    """Return what was accumulated and the product of floats of 8 bits."""
    x, w = floats(args.x1), floats(args.x2)
    if args.x1_scale is not None and args.x1_scale.dim() == 3:
        added = _of_blocks(x, w, args.x1_scale, args.x2_scale, None)
    else:
        added = x @ w * floats(args.x2_scale) * (1.0 if args.x1_scale is None else floats(args.x1_scale))
    return in_dtype(floats(args.self) + added, torch.float32)


@by_schema
def npu_add_quant_matmul_(args: Arguments) -> Tensor:
    """Write what was accumulated and the product."""
    kinds = {"x1_scale_dtype": args.x1_scale_dtype, "x2_scale_dtype": args.x2_scale_dtype}
    return args.self.copy_(
        npu_add_quant_matmul(args.self, args.x1, args.x2, args.x2_scale, x1_scale=args.x1_scale, **kinds)
    )
