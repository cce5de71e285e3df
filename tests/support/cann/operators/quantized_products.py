"""Products of quantized matrices, computed independently of the golden definitions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

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


def npu_quant_matmul(
    x1: Tensor,
    x2: Tensor,
    scale: Tensor,
    *,
    offset: Tensor | None = None,
    pertoken_scale: Tensor | None = None,
    bias: Tensor | None = None,
    output_dtype: torch.dtype | int | None = None,
    x1_dtype: int | None = None,
    x2_dtype: int | None = None,
    pertoken_scale_dtype: int | None = None,
    scale_dtype: int | None = None,
    group_sizes: Sequence[int] | None = None,
    y_scale: Tensor | None = None,
) -> Tensor:
    """Return the product of quantized operands with its scales, offset and bias."""
    dtype = _dtype(output_dtype, torch.int8)
    x = whole(x1)
    w = whole(x2, x.shape[-1])
    if dtype is torch.int32:
        return torch.from_numpy((np.matmul(x, w) + (0 if bias is None else floats(bias))).astype(np.int32))
    factor, packed = read_scale(scale)
    is_mixed = x2.dtype is torch.int32 and x1.dtype is torch.int8
    is_of_blocks = pertoken_scale is not None and pertoken_scale.dim() > 1 and pertoken_scale.shape[-1] > 1
    if is_mixed and offset is not None and pertoken_scale is not None:
        return in_dtype(by_halves(x, w, factor, floats(offset)) * floats(pertoken_scale).reshape(-1, 1), dtype)
    if pertoken_scale is not None and is_of_blocks:
        out = _of_blocks(x, w, pertoken_scale, scale, group_sizes)
        return in_dtype(out + (0 if bias is None else floats(bias)), dtype)
    if y_scale is not None:
        size = w.shape[0] // factor.shape[0]
        return in_dtype(np.matmul(x, w * np.repeat(factor, size, 0)) * read_scale(y_scale)[0], dtype)
    return _finished(np.matmul(x, w), factor, packed, x1, scale, offset, pertoken_scale, bias, dtype)


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


def npu_weight_quant_batchmatmul(
    x: Tensor,
    weight: Tensor,
    antiquant_scale: Tensor,
    antiquant_offset: Tensor | None = None,
    quant_scale: Tensor | None = None,
    quant_offset: Tensor | None = None,
    bias: Tensor | None = None,
    antiquant_group_size: int = 0,
    inner_precise: int = 0,
    weight_dtype: int | None = None,
) -> Tensor:
    """Return the product of floats with a weight of whole numbers, quantized where it is to be."""
    values, (rows, columns) = floats(x), (x.shape[1], 0)
    w = whole(weight, rows)
    columns = w.shape[1]
    scale, _ = read_scale(antiquant_scale)
    shift = np.zeros(1) if antiquant_offset is None else floats(antiquant_offset)
    out = np.zeros((len(values), columns))
    for k in range(rows):
        group = k // antiquant_group_size if antiquant_group_size else 0
        of_row = [np.atleast_2d(each)[min(group, len(np.atleast_2d(each)) - 1)] for each in (scale, shift)]
        out += np.outer(values[:, k], (w[k] + of_row[1]) * of_row[0])
    out = out + (0 if bias is None else floats(bias))
    if quant_scale is None:
        return in_dtype(out, x.dtype)
    factor, packed = read_scale(quant_scale)
    return to_int8(out * factor + (packed if quant_offset is None else floats(quant_offset)))


def npu_quant_matmul_gelu(
    x1: Tensor,
    x2: Tensor,
    x1_scale: Tensor,
    x2_scale: Tensor,
    *,
    bias: Tensor | None = None,
    approximate: str | None = "gelu_erf",
) -> Tensor:
    """Return the activated product of quantized operands."""
    x = whole(x1)
    product = np.matmul(x, whole(x2, x.shape[-1]))
    before = 0 if bias is None or bias.is_floating_point() else floats(bias)
    behind = 0 if bias is None or not bias.is_floating_point() else floats(bias)
    scaled = (product + before) * floats(x2_scale) * floats(x1_scale).reshape(-1, 1) + behind
    dtype = torch.bfloat16 if x2_scale.dtype is torch.bfloat16 else torch.float16
    return in_dtype(activated(approximate or "gelu_erf", scaled), dtype)


def npu_quant_matmul_reduce_sum(
    x1: Tensor, x2: Tensor, *, x1_scale: Tensor | None = None, x2_scale: Tensor | None = None
) -> Tensor:
    """Return the sum of the scaled products of a batch."""
    out = np.zeros((x1.shape[1], x2.shape[2]))
    for i in range(x1.shape[0]):
        token = 1.0 if x1_scale is None else floats(x1_scale)[i][:, None]
        out += floats(x1[i]) @ floats(x2[i]) * token * (1.0 if x2_scale is None else floats(x2_scale)[None])
    return in_dtype(out, torch.bfloat16)


def quantized(x: Tensor, smooth_scale: Tensor | None, x_scale: Tensor | None) -> tuple[Array, Array]:
    """Return the rows of x as whole numbers of 8 bits, and their scales."""
    values = floats(x) * (1.0 if smooth_scale is None else floats(smooth_scale))
    scale = np.abs(values).max(1) / 127 if x_scale is None else np.broadcast_to(floats(x_scale), (len(values),))
    return np.clip(np.rint(values / np.where(scale == 0, 1.0, scale)[:, None]), -128, 127), scale


def npu_quant_matmul_dequant(
    x: Tensor,
    quantized_weight: Tensor,
    weight_scale: Tensor,
    *,
    bias: Tensor | None = None,
    x_scale: Tensor | None = None,
    x_offset: Tensor | None = None,
    smooth_scale: Tensor | None = None,
    quant_mode: str | None = "pertoken",
) -> Tensor:
    """Return the product of rows that are quantized on the way."""
    rows, scale = quantized(x, smooth_scale, x_scale)
    factor, _ = read_scale(weight_scale)
    product = (rows @ floats(quantized_weight).T + (0 if bias is None else floats(bias))) * factor
    return in_dtype(product * scale[:, None] if weight_scale.is_floating_point() else product, torch.float16)


def npu_transpose_quant_batchmatmul(
    x1: Tensor,
    x2: Tensor,
    dtype: torch.dtype | int,
    *,
    bias: Tensor | None = None,
    x1_scale: Tensor | None = None,
    x2_scale: Tensor | None = None,
    group_sizes: Sequence[int] | None = None,
    perm_x1: Sequence[int] | None = None,
    perm_x2: Sequence[int] | None = None,
    perm_y: Sequence[int] | None = None,
    batch_split_factor: int | None = 1,
    x1_dtype: int | None = None,
    x2_dtype: int | None = None,
) -> Tensor:
    """Return one product for each batch, of permuted operands with their scales."""
    order_x, order_w = tuple(perm_x1 or (0, 1, 2)), tuple(perm_x2 or (0, 1, 2))
    x, w = floats(x1).transpose(order_x), floats(x2).transpose(order_w)
    outs = []
    for b in range(len(x)):
        if x1_scale is not None and x2_scale is not None and x1_scale.dim() == 4:
            left = exponents(x1_scale).transpose(*order_x, 3)[b].reshape(x.shape[1], -1)
            right = np.moveaxis(exponents(x2_scale).transpose(*order_w, 3)[b], -1, 1).reshape(-1, w.shape[2])
            outs.append(by_blocks(x[b], w[b], left, right, 32, group_m=1, group_n=1))
        else:
            rows = 1.0 if x1_scale is None else floats(x1_scale)[:, None]
            outs.append(x[b] @ w[b] * rows * (1.0 if x2_scale is None else floats(x2_scale)[None]))
    found = np.stack(outs).transpose(tuple(perm_y or (1, 0, 2)))
    if batch_split_factor not in (None, 1):
        found = np.moveaxis(found.reshape(found.shape[0], batch_split_factor, -1), 1, 0)
    return in_dtype(found, _dtype(dtype, torch.float16))


def npu_add_quant_matmul(
    self: Tensor,
    x1: Tensor,
    x2: Tensor,
    x2_scale: Tensor,
    *,
    x1_scale: Tensor | None = None,
    group_sizes: Sequence[int] | None = None,
    x1_dtype: int | None = None,
    x2_dtype: int | None = None,
    x1_scale_dtype: int | None = None,
    x2_scale_dtype: int | None = None,
) -> Tensor:
    """Return what was accumulated and the product of floats of 8 bits."""
    x, w = floats(x1), floats(x2)
    if x1_scale is not None and x1_scale.dim() == 3:
        added = _of_blocks(x, w, x1_scale, x2_scale, None)
    else:
        added = x @ w * floats(x2_scale) * (1.0 if x1_scale is None else floats(x1_scale))
    return in_dtype(floats(self) + added, torch.float32)


def npu_add_quant_matmul_(
    self: Tensor,
    x1: Tensor,
    x2: Tensor,
    x2_scale: Tensor,
    *,
    x1_scale: Tensor | None = None,
    group_sizes: Sequence[int] | None = None,
    x1_dtype: int | None = None,
    x2_dtype: int | None = None,
    x1_scale_dtype: int | None = None,
    x2_scale_dtype: int | None = None,
) -> Tensor:
    """Write what was accumulated and the product."""
    kinds = {"x1_scale_dtype": x1_scale_dtype, "x2_scale_dtype": x2_scale_dtype}
    return self.copy_(npu_add_quant_matmul(self, x1, x2, x2_scale, x1_scale=x1_scale, **kinds))
