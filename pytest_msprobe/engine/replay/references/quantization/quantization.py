"""Quantization to 8 bits and back; every whole number is rounded half to even and kept within its dtype."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from pytest_msprobe.engine.replay.references.experts.expert_groups import each_row
from pytest_msprobe.engine.replay.references.reference_arguments import at_least_float32, refuse

if TYPE_CHECKING:
    from torch import Tensor

_INT8 = (None, torch.int8, torch.qint8)
_STORED_AS = {torch.qint8: torch.int8, torch.quint8: torch.uint8}


def rounded(values: Tensor, dtype: torch.dtype = torch.int8) -> Tensor:
    """Round half to even and saturate."""
    limits = torch.iinfo(dtype)
    return values.detach().round().clamp(limits.min, limits.max).to(dtype)


def refuse_but_int8(api: str, **dtype: object) -> None:
    """Raise NotImplementedError where another dtype than int8, by its only argument's name, is asked for."""
    for name, given in dtype.items():
        if given not in _INT8:
            raise NotImplementedError(f"{api} has no golden definition with {name} {given}; known is torch.int8")


def quantized_by_row(values: Tensor) -> tuple[Tensor, Tensor]:
    """Return (int8, scale): round(values / scale), scale = max|values| / 127 of each last dimension; 0 for zeros."""
    scale = values.abs().amax(-1) / 127
    return rounded((values / scale.unsqueeze(-1)).masked_fill(scale.unsqueeze(-1) == 0, 0.0)), scale


def npu_quantize(
    self: Tensor,
    scales: Tensor,
    zero_points: Tensor | None,
    dtype: torch.dtype,
    axis: int = 1,
    div_mode: bool = True,
) -> Tensor:
    """Return round(self / scales + zero_points), with ``div_mode`` false round(self * scales + zero_points).

    A one-dimensional ``scales`` runs along ``axis``, which is the last dimension without ``div_mode`` unless it is -2.
    ``dtype`` is qint8 or int8 (int8), quint8 (uint8) or int32. Raises NotImplementedError for another one.
    """
    stored = _STORED_AS.get(dtype, dtype)
    if stored not in (torch.int8, torch.uint8, torch.int32):
        raise NotImplementedError(f"npu_quantize has no golden definition with dtype {dtype}")
    along = axis if div_mode or axis == -2 else -1
    x = at_least_float32(self)
    scale = _along(at_least_float32(scales), along, x.dim())
    shift = 0 if zero_points is None else _along(at_least_float32(zero_points), along, x.dim())
    return rounded((x / scale if div_mode else x * scale) + shift, stored)


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
    dst_dtype: torch.dtype | None = None,
    src_dtype: torch.dtype | None = None,
) -> Tensor:
    """Return (x + offset) * scale, in ``dst_dtype`` where given; x is int8.

    Raises NotImplementedError for int32, of which each holds eight numbers of 4 bits.
    """
    refuse("npu_anti_quant", x_of_int32=x if x.dtype is torch.int32 else None)
    refuse_but_int8("npu_anti_quant", src_dtype=src_dtype)
    shifted = x.to(scale.dtype) if offset is None else x.to(scale.dtype) + offset
    return shifted * scale if dst_dtype is None else (shifted * scale).to(dst_dtype)


def npu_dynamic_quant(
    input: Tensor,  # noqa: A002
    *,
    smooth_scales: Tensor | None = None,
    group_index: Tensor | None = None,
    dst_type: torch.dtype | None = None,
    quant_mode: str = "pertoken",
    dst_type_max: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """Return (round(x / scale) in int8, scale = max|x| / 127), x = input * smooth_scales, by the last dimension.

    With ``group_index``, ends of groups of rows, each group has its row of ``smooth_scales``. Raises
    NotImplementedError for another ``dst_type`` or ``quant_mode``.
    """
    refuse_but_int8("npu_dynamic_quant", dst_type=dst_type)
    refuse("npu_dynamic_quant", quant_mode=None if quant_mode == "pertoken" else quant_mode)
    return quantized_by_row(_smoothed("npu_dynamic_quant", input, smooth_scales, group_index))


def npu_dynamic_quant_asymmetric(
    x: Tensor,
    *,
    smooth_scales: Tensor | None = None,
    group_index: Tensor | None = None,
    dst_type: torch.dtype | None = None,
    quant_mode: str = "pertoken",
    dst_type_max: float = 0.0,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return (round(x / scale + offset) in int8, scale, offset) by the last dimension.

    scale = (max - min) / 255 and offset = 127 - max / scale, of x * smooth_scales; groups as in
    :func:`npu_dynamic_quant`. Raises NotImplementedError for another ``dst_type`` or ``quant_mode``, and for rows of
    one value, whose scale is 0.
    """
    api = "npu_dynamic_quant_asymmetric"
    refuse_but_int8(api, dst_type=dst_type)
    refuse(api, quant_mode=None if quant_mode == "pertoken" else quant_mode)
    values = _smoothed(api, x, smooth_scales, group_index)
    low, high = values.aminmax(dim=-1, keepdim=True)
    refuse(api, rows_of_one_value=low if bool((low == high).any()) else None)
    scale = (high - low) / 255
    offset = 127 - high / scale
    return rounded(values / scale + offset), scale.squeeze(-1), offset.squeeze(-1)


def _smoothed(api: str, x: Tensor, smooth_scales: Tensor | None, group_index: Tensor | None) -> Tensor:
    values = at_least_float32(x)
    if smooth_scales is None:
        return values
    smooth = at_least_float32(smooth_scales)
    if group_index is not None:
        rows = x.shape[:-1].numel()
        smooth = each_row(api, smooth, group_index, rows, cumulative=True).reshape(x.shape)
    return values * smooth


def npu_group_quant(
    x: Tensor,
    scale: Tensor,
    group_index: Tensor,
    *,
    offset: Tensor | None = None,
    dst_dtype: torch.dtype | None = None,
) -> Tensor:
    """Return round(x * scale + offset) in int8 for x (rows, n), each group of rows by its row of ``scale``.

    ``group_index`` are the groups' ends. Raises NotImplementedError for another ``dst_dtype``.
    """
    refuse_but_int8("npu_group_quant", dst_dtype=dst_dtype)
    factors = each_row("npu_group_quant", at_least_float32(scale), group_index, x.shape[0], cumulative=True)
    shift = 0 if offset is None else at_least_float32(offset)
    return rounded(at_least_float32(x) * factors + shift)
