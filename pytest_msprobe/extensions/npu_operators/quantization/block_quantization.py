"""Quantization of blocks, rows or whole tensors with a scale in float32 each, also behind a product with a matrix."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F

from pytest_msprobe.engine.values.number_formats import (
    E2M1,
    E4M3,
    E5M2,
    FLOAT8S,
    HIFLOAT8,
    INT4,
    INT8,
    NumberFormat,
    format_among,
    store,
)
from pytest_msprobe.extensions.npu_operators.quantization.microscaling import mx_quantized, mx_scaling
from pytest_msprobe.extensions.npu_operators.reference_arguments import at_least_float32, refuse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor


def npu_dynamic_block_quant(
    x: Tensor,
    *,
    min_scale: float = 0.0,
    round_mode: str = "rint",
    dst_type: object = 1,
    row_block_size: int = 1,
    col_block_size: int = 128,
    dst_type_max: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """Return (y, scales) of x (..., m, n), scale = max|x| / largest of each block, and at most 1 / ``min_scale``.

    y is x / scale in ``dst_type``: int8, HiFloat8 or another float of 8 bits. ``dst_type_max`` is the largest number of
    HiFloat8 in place of its own. The scales are (..., ceil(m / row_block_size), ceil(n / col_block_size)).
    """
    to = format_among("npu_dynamic_block_quant", "dst_type", dst_type, (INT8, HIFLOAT8, *FLOAT8S))
    scales = _block_scales(x, to, dst_type_max, min_scale, (row_block_size, col_block_size))
    each = _for_each(scales, x, (row_block_size, col_block_size))
    return store(_divided(x, each), to, round_mode), scales


def _block_scales(x: Tensor, to: NumberFormat, dst_type_max: float, min_scale: float, block: tuple[int, int]) -> Tensor:
    """Return the scale of each block of rows and columns, a short one at the end as well."""
    rows, columns = block
    padded = F.pad(at_least_float32(x.detach()).abs(), (0, -x.shape[-1] % columns, 0, -x.shape[-2] % rows))
    amax = torch.unflatten(torch.unflatten(padded, -1, (-1, columns)), -3, (-1, rows)).amax((-3, -1))
    scales = amax / (dst_type_max or to.largest)
    return scales.clamp(max=1 / min_scale) if min_scale else scales


def _for_each(scales: Tensor, x: Tensor, block: tuple[int, int]) -> Tensor:
    rows, columns = block
    return scales.repeat_interleave(rows, -2).repeat_interleave(columns, -1)[..., : x.shape[-2], : x.shape[-1]]


def _divided(x: Tensor, scales: Tensor) -> Tensor:
    """Return x / scales, 0 where a block has nothing but zeros."""
    return (at_least_float32(x.detach()) / scales).masked_fill(scales == 0, 0.0)


def npu_grouped_dynamic_block_quant(
    x: Tensor, group_list: Tensor,
    *, min_scale: float = 0.0, round_mode: str = "rint", dst_type: object = 291, row_block_size: int = 1,
    col_block_size: int = 128, group_list_type: int = 0, dst_type_max: float = 0.0,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return (y, scales) as :func:`npu_dynamic_block_quant`, in blocks of rows that begin anew in each group.

    ``group_list`` holds the ends of the groups. The scales are (..., m // row_block_size + groups, ...); those of group
    g, which begins at row s, lie from s // row_block_size + g on, and what lies between groups is assumed to be 0.
    Raises NotImplementedError for another ``group_list_type``.
    """
    api = "npu_grouped_dynamic_block_quant"
    refuse(api, group_list_type=group_list_type or None)
    to = format_among(api, "dst_type", dst_type, (E5M2, E4M3, HIFLOAT8))
    block = (row_block_size, col_block_size)
    ends: Sequence[int] = group_list.tolist()
    count = x.shape[-2] // row_block_size + len(ends)
    divided = torch.zeros_like(at_least_float32(x.detach()))
    scales = divided.new_zeros(*x.shape[:-2], count, -(-x.shape[-1] // col_block_size))
    for group, (start, end) in enumerate(pairwise([0, *ends])):
        rows = x[..., start:end, :]
        if end > start:
            found = _block_scales(rows, to, dst_type_max, min_scale, block)
            first = start // row_block_size + group
            scales[..., first : first + found.shape[-2], :] = found
            divided[..., start:end, :] = _divided(rows, _for_each(found, rows, block))
    return store(divided, to, round_mode), scales


def npu_quant_max(
    x: Tensor, scale: Tensor, *, round_mode: str = "rint", dst_dtype: object = 291, group_list: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return (x * scale in a float of 8 bits, max|x|), both of each group of rows, which end at ``group_list``."""
    to = format_among("npu_quant_max", "dst_dtype", dst_dtype, (E5M2, E4M3, HIFLOAT8))
    ends = [len(x)] if group_list is None or len(group_list) <= 1 else group_list.tolist()
    groups = [x[start:end].detach() for start, end in pairwise([0, *ends])]
    products = [at_least_float32(rows) * factor for rows, factor in zip(groups, scale, strict=True)]
    largest = [rows.abs().amax() if rows.numel() else x.new_zeros(()) for rows in groups]
    return store(torch.cat(products), to, round_mode), torch.stack(largest)


def npu_kronecker_quant(
    x: Tensor,
    kronecker_p1: Tensor,
    kronecker_p2: Tensor,
    clip_ratio: float | None = None,
    dst_dtype: object = None,
    dst_type_max: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Return (y, scales) of p1 @ x @ p2 for x (k, m, n).

    y holds whole numbers of 4 bits, eight in an int32, (k, m, n / 8), and the scale of each k is max|p1 @ x @ p2| *
    clip_ratio / 7. For ``dst_dtype`` float4_e2m1fn_x2 y is (k, m * n / 2) with shared exponents of each 32 numbers, and
    a p2 without elements is left out; ``dst_type_max`` other than 0 is assumed to mean what it means with ``scale_alg``
    2.
    """
    api = "npu_kronecker_quant"
    to = format_among(api, "dst_dtype", dst_dtype, (INT4, E2M1))
    right = at_least_float32(x.detach())
    right = right @ at_least_float32(kronecker_p2) if kronecker_p2.numel() else right
    rotated = at_least_float32(kronecker_p1) @ right
    if to is E2M1:
        how = mx_scaling(api, dst_dtype, scale_alg=2 if dst_type_max else 0, dst_type_max=dst_type_max)
        return mx_quantized(rotated.flatten(1), -1, how)
    scales = rotated.abs().amax((1, 2)) * (1.0 if clip_ratio is None else clip_ratio) / INT4.largest
    return store(_divided(rotated, scales[:, None, None].expand_as(rotated)), INT4), scales


def npu_rotate_quant(
    x: Tensor, rotation: Tensor,
    *, alpha: Tensor | None = None, dst_dtype: object = None, axis: int | None = -1,
    round_mode: str | None = "rint", scale_alg: int | None = 0, dst_type_max: float | None = 0.0,
    transpose_y: bool | None = False,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return (y, scales) of x (..., n), each K columns of it times ``rotation``, K x K, from the right.

    ``rotation`` may be (n / K, K, K), one for each. ``dst_dtype`` int8 and quint4x2 (eight numbers in an int32) have a
    scale of each row, max / 127 or max / 7; a float of 4 or 8 bits has shared exponents of each 32 numbers. Raises
    NotImplementedError for an ``alpha`` within (0, 1), whose meaning is not documented, for ``transpose_y``, and for
    another ``axis`` than the last.
    """
    api = "npu_rotate_quant"
    is_used = alpha is not None and bool(((alpha > 0) & (alpha < 1)).any())
    is_last = axis in (None, -1, x.dim() - 1)
    refuse(api, alpha=alpha if is_used else None, transpose_y=transpose_y or None, axis=None if is_last else axis)
    to = format_among(api, "dst_dtype", dst_dtype, (INT8, INT4, E2M1, *FLOAT8S))
    parts = torch.unflatten(at_least_float32(x.detach()), -1, (-1, 1, rotation.shape[-1]))
    rotated = (parts @ at_least_float32(rotation)).flatten(-3)
    if to in (INT8, INT4):
        scales = rotated.abs().amax(-1) / to.largest
        return store(_divided(rotated, scales.unsqueeze(-1).expand_as(rotated)), to, round_mode or "rint"), scales
    how = mx_scaling(api, dst_dtype, scale_alg=scale_alg, dst_type_max=dst_type_max, round_mode=round_mode)
    return mx_quantized(rotated, -1, how)
