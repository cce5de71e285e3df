"""Blocks of numbers with a shared exponent or scale, and quantization of such blocks."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F

from pytest_msprobe.engine.replay.ops.operators import golden
from pytest_msprobe.engine.replay.ops.traits import OpInfo
from pytest_msprobe.extensions.npu_operators.arguments import at_least_float32, refuse
from pytest_msprobe.extensions.npu_operators.inputs import moe_routing as routing
from pytest_msprobe.extensions.npu_operators.quantization import number_formats as formats
from pytest_msprobe.extensions.npu_operators.quantization.number_formats import (
    BLOCK,
    E1M2,
    E2M1,
    E4M3,
    E5M2,
    FLOAT4S,
    FLOAT8S,
    HIFLOAT8,
    INT4,
    INT8,
    NumberFormat,
    blocks_of_rows,
    format_among,
    store,
)
from pytest_msprobe.extensions.npu_operators.quantization.quantized_results import QuantizedResults, SharedExponents

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

# Largest numbers with which scale_alg 2 compares the significand of the largest magnitude, and that significand.
_THRESHOLDS = {(E2M1, 0.0): 1.5, (E2M1, 6.0): 1.5, (E2M1, 7.0): 1.75, (E1M2, 1.875): 1.875}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """Computation of shared exponents, as the arguments of these names say, from the largest magnitude of a block.

    ``scale_alg`` 0 is floor(log2 amax) - emax, the specification's. 1 is log2(amax / largest) rounded up, so that
    nothing exceeds the format's largest number. 2 is the same with ``dst_type_max`` for the largest, except for some of
    these: for them it is 0, and one more where the significand of amax exceeds a threshold.
    """

    to: NumberFormat
    scale_alg: int = 0
    dst_type_max: float = 0.0
    max_low_bound: float = 0.0
    round_mode: str = "rint"
    block: int = BLOCK


def mx_scaling(
    api: str,
    dst_type: object,
    *,
    scale_alg: int | None = 0,
    dst_type_max: float | None = 0.0,
    max_low_bound: float = 0.0,
    round_mode: str | None = "rint",
    block: int = BLOCK,
) -> Scaling:
    """Return how an operator scales, of its own arguments.

    Raises NotImplementedError for a format that is no float of 4 or 8 bits, and a ``scale_alg`` that the format does
    not have.
    """
    to = format_among(api, "dst_type", dst_type, (E2M1, *FLOAT4S, *FLOAT8S))
    algorithm = scale_alg or 0
    is_known = algorithm in ((0, 2) if to in FLOAT4S else (0, 1))
    refuse(api, **{f"scale_alg_{algorithm}_for_{to.name}": None if is_known else algorithm})
    return Scaling(
        to=to,
        scale_alg=algorithm,
        dst_type_max=dst_type_max or 0.0,
        max_low_bound=max_low_bound,
        round_mode=round_mode or "rint",
        block=block,
    )


def shared_exponents(amax: Tensor, how: Scaling) -> Tensor:
    """Return the exponents (int64, at least -127) of blocks with these largest magnitudes; -127 for a block of zeros.

    A block that holds infinity or NaN has 128, that is 255 when stored. As CANN's own tests of its operators do.
    """
    largest = how.dst_type_max or how.to.largest
    if how.scale_alg == 0:
        exponents = floor_log2(amax) - how.to.emax
    elif how.scale_alg == 2 and (how.to, how.dst_type_max) in _THRESHOLDS:
        threshold = _THRESHOLDS[how.to, how.dst_type_max]
        # of which the device compares the bits of bfloat16
        narrow = amax.bfloat16().double()
        power = floor_log2(narrow)
        exponents = power + (torch.ldexp(narrow, -power) > threshold).long() - how.to.emax
    else:
        # a division in float32, as the device divides
        ratio = amax.clamp(min=how.max_low_bound).float() / largest
        power = floor_log2(ratio)
        exponents = power + (torch.ldexp(ratio.double(), -power) > 1).long()
    return exponents.masked_fill(amax == 0, -127).clamp(-127, 127).masked_fill(~amax.isfinite(), 128)


def floor_log2(values: Tensor) -> Tensor:
    """Return floor(log2 |values|), in int64; of zero something."""
    return torch.frexp(values.double()).exponent.long() - 1


def scaled(x: Tensor, exponents: Tensor) -> Tensor:
    """Return x / 2^exponents, 0 in a block that holds what is not finite."""
    return torch.ldexp(x, -exponents).masked_fill(exponents == 128, 0.0)


def mx_quantized(x: Tensor, axis: int, how: Scaling) -> tuple[Tensor, Tensor]:
    """Return (y, shared exponents in uint8) of x, by blocks along an axis; a last block may be short.

    The exponents have the shape of x with ceil(ceil(n / block) / 2) for n on the axis, and a last dimension of two.
    """
    along = x.detach().double().movedim(axis, -1)
    count = along.shape[-1]
    blocks = torch.unflatten(F.pad(along, (0, -count % how.block)), -1, (-1, how.block))
    exponents = shared_exponents(blocks.abs().amax(-1), how)
    values = scaled(blocks, exponents.unsqueeze(-1)).flatten(-2)[..., :count].movedim(-1, axis)
    return store(values, how.to, how.round_mode), _in_pairs(exponents, axis)


def _in_pairs(exponents: Tensor, axis: int) -> Tensor:
    """Return exponents, the blocks last, as they are stored, the pairs at an axis of the quantized tensor."""
    stored = (exponents + 127).to(torch.uint8)
    pairs = torch.unflatten(F.pad(stored, (0, stored.shape[-1] % 2)), -1, (-1, 2))
    return pairs.movedim(-2, axis if axis >= 0 else axis - 1)


def mx_quantized_rows(x: Tensor, ends: Sequence[int], how: Scaling) -> tuple[Tensor, Tensor]:
    """Return (y, shared exponents) of x (m, n) by blocks of rows, which begin anew in each group that ends at ``ends``.

    The exponents are (m // 64 + groups, n, 2). Those of group g, which begins at row s, lie from s // 64 + g on; what
    lies between groups is 0. Rows behind the last group become 0.
    """
    places = blocks_of_rows(x.shape[0], ends, how.block)
    count = 2 * (x.shape[0] // (2 * how.block) + len(ends))
    wide = x.detach().double()
    is_grouped = places >= 0
    where = places.clamp(min=0).unsqueeze(-1).expand_as(wide)
    magnitudes = wide.abs().masked_fill(~is_grouped.unsqueeze(-1), 0.0)
    amax = wide.new_zeros(count, x.shape[1]).scatter_reduce(0, where, magnitudes, "amax")
    exponents = shared_exponents(amax, how)
    values = scaled(wide, exponents.gather(0, where)).masked_fill(~is_grouped.unsqueeze(-1), 0.0)
    return store(values, how.to, how.round_mode), _in_pairs(exponents.T, 0)


def mx_numbers(values: Tensor, mxscale: Tensor, axis: int, block: int = BLOCK) -> Tensor:
    """Return values * 2^(mxscale - 127), in float64, for exponents in pairs along an axis."""
    along = values.double().movedim(axis, -1)
    pairs = mxscale.movedim(axis if axis >= 0 else axis - 1, -2).flatten(-2).long() - 127
    exponents = pairs.repeat_interleave(block, -1)[..., : along.shape[-1]]
    return torch.ldexp(along, exponents).movedim(-1, axis)


@golden("NPU.npu_dynamic_block_quant", OpInfo(quantized=QuantizedResults()))
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
    element_scales = _for_each(scales, x, (row_block_size, col_block_size))
    return store(_divided(x, element_scales), to, round_mode), scales


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


@golden(
    "NPU.npu_grouped_dynamic_block_quant",
    OpInfo(quantized=QuantizedResults(default=formats.E5M2), constraint=routing.groups_of_rows("group_list", at=1)),
)
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
            group_scales = _block_scales(rows, to, dst_type_max, min_scale, block)
            first = start // row_block_size + group
            scales[..., first : first + group_scales.shape[-2], :] = group_scales
            divided[..., start:end, :] = _divided(rows, _for_each(group_scales, rows, block))
    return store(divided, to, round_mode), scales


@golden(
    "NPU.npu_quant_max",
    OpInfo(
        quantized=QuantizedResults(dtype="dst_dtype", default=formats.E5M2),
        constraint=routing.groups_of_rows("group_list"),
    ),
)
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


@golden(
    "NPU.npu_kronecker_quant",
    OpInfo(
        quantized=QuantizedResults(dtype="dst_dtype", at=4, default=formats.INT4, exponents=(SharedExponents(at=1),))
    ),
)
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


@golden(
    "NPU.npu_rotate_quant", OpInfo(quantized=QuantizedResults(dtype="dst_dtype", exponents=(SharedExponents(at=1),)))
)
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
