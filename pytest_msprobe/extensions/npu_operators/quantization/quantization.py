"""Quantization to whole numbers and floats of 4 and 8 bits with scales in float, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from pytest_msprobe.engine.replay.ops.operators import golden
from pytest_msprobe.engine.replay.ops.traits import OpInfo
from pytest_msprobe.extensions.npu_operators.arguments import at_least_float32, refuse
from pytest_msprobe.extensions.npu_operators.experts.moe import each_row
from pytest_msprobe.extensions.npu_operators.inputs import moe_routing as routing
from pytest_msprobe.extensions.npu_operators.inputs import sequences
from pytest_msprobe.extensions.npu_operators.quantization.number_formats import (
    FLOAT8S,
    HIFLOAT8,
    INT4,
    INT8,
    INT32,
    UINT8,
    NumberFormat,
    float_dtype,
    format_among,
    numbers_in,
    store,
)
from pytest_msprobe.extensions.npu_operators.quantization.quantized_results import QuantizedResults

if TYPE_CHECKING:
    from collections.abc import Callable

_DYNAMIC = (INT8, INT4, *FLOAT8S, HIFLOAT8)
_MODES = {"pertoken": -1, "perchannel": -2, "pertensor": None}


def rounded(values: Tensor, dtype: torch.dtype = torch.int8) -> Tensor:
    """Round half to even and saturate."""
    limits = torch.iinfo(dtype)
    return values.detach().round().clamp(limits.min, limits.max).to(dtype)


def quantized_by_row(values: Tensor, to: NumberFormat = INT8) -> tuple[Tensor, Tensor]:
    """Return (numbers, scale): values / scale rounded, scale = max|values| / largest of each last dimension.

    Of a row of zeros both are 0.
    """
    scale = values.abs().amax(-1) / to.largest
    return store((values / scale.unsqueeze(-1)).masked_fill(scale.unsqueeze(-1) == 0, 0.0), to), scale


@golden("NPU.npu_quantize", OpInfo(quantized=QuantizedResults(dtype="dtype", at=3, of_int32=True)))
def npu_quantize(
    self: Tensor,
    scales: Tensor,
    zero_points: Tensor | None,
    dtype: object,
    axis: int = 1,
    div_mode: bool = True,
) -> Tensor:
    """Return round(self / scales + zero_points), with ``div_mode`` false round(self * scales + zero_points).

    A one-dimensional ``scales`` runs along ``axis``, which is the last dimension without ``div_mode`` unless it is -2.
    ``dtype`` is qint8 or int8 (int8), quint8 (uint8), int32, quint4x2 (eight numbers in an int32) or a float of 8 bits.
    Raises NotImplementedError for another one.
    """
    to = format_among("npu_quantize", "dtype", dtype, (INT8, UINT8, INT32, INT4, *FLOAT8S, HIFLOAT8))
    along = axis if div_mode or axis == -2 else -1
    x = at_least_float32(self)
    scale = _along(at_least_float32(scales), along, x.dim())
    shift = 0 if zero_points is None else _along(at_least_float32(zero_points), along, x.dim())
    return store((x / scale if div_mode else x * scale) + shift, to)


def _along(parameter: Tensor, axis: int, dims: int) -> Tensor:
    if parameter.dim() != 1:
        return parameter
    shape = [1] * dims
    shape[axis] = -1
    return parameter.reshape(shape)


@golden("NPU.npu_anti_quant")
def npu_anti_quant(
    x: Tensor,
    scale: Tensor,
    *,
    offset: Tensor | None = None,
    dst_dtype: object = None,
    src_dtype: object = None,
) -> Tensor:
    """Return (x + offset) * scale, in ``dst_dtype`` where given.

    x is int8, int32 (eight numbers of 4 bits each), a float of 8 bits, or uint8 with ``src_dtype`` HiFloat8. Raises
    NotImplementedError for a ``src_dtype`` that is none of these.
    """
    numbers = x
    if not x.is_floating_point():
        packed = INT4 if x.dtype is torch.int32 else HIFLOAT8 if x.dtype is torch.uint8 else INT8
        source = format_among("npu_anti_quant", "src_dtype", src_dtype, (packed, INT8, INT4, HIFLOAT8))
        numbers = numbers_in(x, packed if source is INT8 else source)
    numbers = numbers.to(scale.dtype)
    shifted = numbers if offset is None else numbers + offset
    return shifted * scale if dst_dtype is None else (shifted * scale).to(float_dtype(dst_dtype, torch.float16))


@golden("NPU.npu_dynamic_quant", OpInfo(quantized=QuantizedResults(), constraint=routing.groups_of_rows("group_index")))
def npu_dynamic_quant(
    input: Tensor,
    *,
    smooth_scales: Tensor | None = None,
    group_index: Tensor | None = None,
    dst_type: object = None,
    quant_mode: str = "pertoken",
    dst_type_max: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """Return (round(x / scale), scale = max|x| / largest), x = input * smooth_scales.

    The largest is that of ``dst_type``: int8, quint4x2 (eight numbers in an int32) or a float of 8 bits, of which
    HiFloat8 takes ``dst_type_max`` in its place. A scale belongs to the last dimension, with ``quant_mode`` perchannel
    to the one before it, as ``smooth_scales`` do, and with pertensor to all. With ``group_index``, ends of groups of
    rows, each group has its row of ``smooth_scales``. Raises NotImplementedError for another ``dst_type`` or
    ``quant_mode``.
    """
    api = "npu_dynamic_quant"
    to = format_among(api, "dst_type", dst_type, _DYNAMIC)
    dim = _dim_of(api, quant_mode)
    values = _smoothed(api, input, smooth_scales, group_index, dim)
    largest = _over(values.abs(), dim, torch.amax)
    scale = largest / (dst_type_max or to.largest if to is HIFLOAT8 else to.largest)
    return store((values / scale).masked_fill(scale == 0, 0.0), to), _without(scale, dim)


@golden(
    "NPU.npu_dynamic_quant_asymmetric",
    OpInfo(quantized=QuantizedResults(), constraint=routing.groups_of_rows("group_index")),
)
def npu_dynamic_quant_asymmetric(
    input: Tensor,
    *,
    smooth_scales: Tensor | None = None,
    group_index: Tensor | None = None,
    dst_type: object = None,
    quant_mode: str = "pertoken",
    dst_type_max: float = 0.0,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return (round(x / scale + offset), scale, offset), as :func:`npu_dynamic_quant` but for the whole range.

    scale = (max - min) / (largest - lowest) and offset = largest - max / scale, where x has its largest and smallest
    value and ``dst_type`` its largest and lowest number. Raises NotImplementedError for another ``dst_type`` or
    ``quant_mode``, and for rows of one value, whose scale is 0.
    """
    api = "npu_dynamic_quant_asymmetric"
    to = format_among(api, "dst_type", dst_type, _DYNAMIC)
    dim = _dim_of(api, quant_mode)
    values = _smoothed(api, input, smooth_scales, group_index, dim)
    high, low = _over(values, dim, torch.amax), _over(values, dim, torch.amin)
    refuse(api, rows_of_one_value=low if bool((low == high).any()) else None)
    is_given = to is HIFLOAT8 and dst_type_max != 0
    largest, lowest = (dst_type_max, -dst_type_max) if is_given else (to.largest, to.lowest)
    scale = (high - low) / (largest - lowest)
    offset = largest - high / scale
    return store(values / scale + offset, to), _without(scale, dim), _without(offset, dim)


def _dim_of(api: str, quant_mode: str) -> int | None:
    refuse(api, quant_mode=None if quant_mode in _MODES else quant_mode)
    return _MODES[quant_mode]


def _over(values: Tensor, dim: int | None, reduce: Callable[..., Tensor]) -> Tensor:
    return reduce(values, dim=tuple(range(values.dim())) if dim is None else dim, keepdim=True)


def _without(reduced: Tensor, dim: int | None) -> Tensor:
    return reduced.reshape(1) if dim is None else reduced.squeeze(dim)


def _smoothed(api: str, x: Tensor, smooth_scales: Tensor | None, group_index: Tensor | None, dim: int | None) -> Tensor:
    values = at_least_float32(x)
    if smooth_scales is None:
        return values
    smooth = at_least_float32(smooth_scales)
    if group_index is not None:
        rows = x.shape[:-1].numel()
        smooth = each_row(api, smooth, group_index, rows, cumulative=True).reshape(x.shape)
    return values * (smooth.unsqueeze(-1) if dim == -2 else smooth)


@golden(
    "NPU.npu_group_quant",
    OpInfo(quantized=QuantizedResults(dtype="dst_dtype"), constraint=routing.groups_of_rows("group_index")),
)
def npu_group_quant(
    x: Tensor,
    scale: Tensor,
    group_index: Tensor,
    *,
    offset: Tensor | None = None,
    dst_dtype: object = None,
) -> Tensor:
    """Return round(x * scale + offset) for x (rows, n), each group of rows by its row of ``scale``.

    ``group_index`` are the groups' ends. ``dst_dtype`` is int8 or quint4x2 (eight numbers in an int32). Raises
    NotImplementedError for another one.
    """
    to = format_among("npu_group_quant", "dst_dtype", dst_dtype, (INT8, INT4))
    factors = each_row("npu_group_quant", at_least_float32(scale), group_index, x.shape[0], cumulative=True)
    shift = 0 if offset is None else at_least_float32(offset)
    return store(at_least_float32(x) * factors + shift, to)


_LOWEST, _HIGHEST = -128, 127
# float32's epsilon: scales below it are taken for none
_NO_SCALE = 2.0**-23


@golden("NPU.npu_ifmr", OpInfo(constraint=sequences.histogram))
def npu_ifmr(
    data: Tensor, data_min: Tensor, data_max: Tensor, cumsum: Tensor, min_percentile: float,
    max_percentile: float, search_start: float, search_end: float, search_step: float, with_offset: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return (scale, offset), in the shape of ``data_min``: of 8 bits, with the least squared error over ``data``.

    ``cumsum`` counts the numbers up to each bin of a histogram from ``data_min`` to ``data_max``. The range begins
    where 1 - ``min_percentile`` of them and ends where ``max_percentile`` of them are reached; its end is tried times
    ``search_start``, ``search_start`` + ``search_step`` and so on below ``search_end``. ``with_offset`` takes the
    range as it is, widened to hold 0; otherwise it is symmetric and the offset 0 (op-plugin's tests).

    Of two scales whose errors differ by rounding the device may take the other; they are ``search_step`` apart.
    """
    low, high = data_min.flatten()[0], data_max.flatten()[0]
    share = cumsum.to(data.dtype) / data.numel()
    bin_width = (high - low) / len(cumsum)
    end = (share < max_percentile).sum() * bin_width + low
    start = (share < 1 - min_percentile).sum() * bin_width + low
    count = max(0, int(torch.tensor((search_end - search_start) / search_step, dtype=torch.float32).ceil()))
    steps = search_start + search_step * torch.arange(count, dtype=data.dtype)
    if with_offset:
        start, end = start.clamp(max=0), end.clamp(min=0)
        scales = (end * steps - start) / (_HIGHEST - _LOWEST)
        scales = torch.where(scales < _NO_SCALE, 1.0, scales)
        offsets = -(torch.round(start / scales) - _LOWEST)
    else:
        scales = torch.maximum(start.abs(), end.abs()) * steps / _HIGHEST
        offsets = torch.zeros_like(scales)
    errors = torch.stack([_error(data, scale, offset) for scale, offset in zip(scales, offsets, strict=True)])
    best = errors.argmin()
    return scales[best].view(data_min.shape), offsets[best].view(data_min.shape)


def _error(data: Tensor, scale: Tensor, offset: Tensor) -> Tensor:
    quantized = (torch.round(data / scale) + offset).clamp(_LOWEST, _HIGHEST)
    return ((quantized - offset) * scale - data).square().sum()


@golden("NPU.npu_moe_init_routing_quant", OpInfo(quantized=QuantizedResults(dtype="")))
def npu_moe_init_routing_quant(
    x: Tensor, expert_idx: Tensor,
    *, scale: Tensor | None = None, offset: Tensor | None = None, active_num: int = 1024,
    expert_capacity: int = 0, expert_num: int = 256, drop_pad_mode: int = 0, expert_tokens_num_mode: int = 0,
    expert_tokens_before_capacity_flag: bool = False, quant_mode: int = 1,
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None, Tensor | None]:  # fmt: skip
    """Return (expanded_x, expanded_row_idx, tokens by expert, those before the capacity, scales) of x (rows, h).

    The rows * k copies are ordered by expert, equals as they stood, and expanded_row_idx (int32) says where each went.
    expanded_x is int8 of the first ``active_num`` copies, of all where it is 0. With ``drop_pad_mode`` 1 it is
    (expert_num, expert_capacity, h) with zeros where an expert has fewer tokens, and what is more is dropped: then
    expanded_row_idx is assumed to be -1. ``quant_mode`` 0 gives round(x * scale + offset), 1 rows with their scales of
    x * ``scale`` (experts or 1, h). Counts (int32) are, without capacities and by ``expert_tokens_num_mode``, none (0),
    those up to each expert (1) or those of each (2), and with capacities, if the flag is set, those of each. Nothing is
    promised of what is None.
    """
    refuse("npu_moe_init_routing_quant", quant_mode=quant_mode if quant_mode not in (0, 1) else None)
    experts, order = expert_idx.flatten().sort(stable=True)
    places = order.argsort()
    counts = torch.bincount(experts, minlength=expert_num)
    tokens = before = None
    if drop_pad_mode:
        before = counts.int() if expert_tokens_before_capacity_flag else None
        within = torch.arange(len(experts), device=x.device) - (counts.cumsum(0) - counts)[experts]
        slots = (experts * expert_capacity + within).masked_fill(within >= expert_capacity, -1)
        routed = order[slots >= 0]
        destinations = slots[slots >= 0]
        places = slots[places]
    else:
        tokens = (None, counts.cumsum(0).int(), counts.int())[expert_tokens_num_mode]
        routed = order[: active_num or None]
        destinations = torch.arange(len(routed), device=x.device)
    numbers, scales = _quantized(x, routed, expert_idx, scale, offset, quant_mode)
    if drop_pad_mode:
        numbers = numbers.new_zeros(expert_num * expert_capacity, x.shape[1]).index_copy(0, destinations, numbers)
        numbers = numbers.reshape(expert_num, expert_capacity, -1)
        scales = (
            None
            if scales is None
            else scales.new_zeros(expert_num * expert_capacity).index_copy(0, destinations, scales)
        )
    return numbers, places.int(), tokens, before, scales


def _quantized(
    x: Tensor, copies: Tensor, expert_idx: Tensor, scale: Tensor | None, offset: Tensor | None, quant_mode: int
) -> tuple[Tensor, Tensor | None]:
    """Return the numbers of copies, each of row copy // k, and the scales of them."""
    rows = at_least_float32(x)[copies // expert_idx.shape[1]]
    if quant_mode == 0:
        rows = rows if scale is None else rows * at_least_float32(scale)
        return store(rows if offset is None else rows + at_least_float32(offset), INT8), None
    if scale is not None:
        smooth = at_least_float32(scale)
        rows = rows * (smooth if len(smooth) == 1 else smooth[expert_idx.flatten()[copies].long()])
    return quantized_by_row(rows)
