"""Quantization to whole numbers and floats of 4 and 8 bits with scales in float, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from pytest_msprobe.engine.values.number_formats import (
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
from pytest_msprobe.extensions.npu_operators.experts.expert_groups import each_row
from pytest_msprobe.extensions.npu_operators.reference_arguments import at_least_float32, refuse

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

_DYNAMIC = (INT8, INT4, *FLOAT8S, HIFLOAT8)
_MODES = {"pertoken": -1, "perchannel": -2, "pertensor": None}


def rounded(values: Tensor, dtype: torch.dtype = torch.int8) -> Tensor:
    """Round half to even and saturate."""
    limits = torch.iinfo(dtype)
    return values.detach().round().clamp(limits.min, limits.max).to(dtype)


def refuse_but_int8(api: str, **dtype: object) -> None:
    """Raise NotImplementedError where another dtype than int8, by its only argument's name, is asked for."""
    for name, given in dtype.items():
        format_among(api, name, given, (INT8,))


def quantized_by_row(values: Tensor, to: NumberFormat = INT8) -> tuple[Tensor, Tensor]:
    """Return (numbers, scale): values / scale rounded, scale = max|values| / largest of each last dimension.

    Of a row of zeros both are 0.
    """
    scale = values.abs().amax(-1) / to.largest
    return store((values / scale.unsqueeze(-1)).masked_fill(scale.unsqueeze(-1) == 0, 0.0), to), scale


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
