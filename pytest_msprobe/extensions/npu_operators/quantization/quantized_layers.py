"""Layers whose results are quantized, and weights that are packed and scaled."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F

from pytest_msprobe.engine.replay.ops.operators import golden
from pytest_msprobe.engine.replay.ops.traits import OpInfo
from pytest_msprobe.extensions.npu_operators.arguments import at_least_float32, out_of_place, refuse
from pytest_msprobe.extensions.npu_operators.inputs import moe_routing as routing
from pytest_msprobe.extensions.npu_operators.layers.normalization import npu_rms_norm, npu_rms_norm_backward
from pytest_msprobe.extensions.npu_operators.matmul.operands import scale_and_offset
from pytest_msprobe.extensions.npu_operators.quantization import number_formats as formats
from pytest_msprobe.extensions.npu_operators.quantization.microscaling import mx_quantized, mx_scaling
from pytest_msprobe.extensions.npu_operators.quantization.number_formats import (
    FLOAT8S,
    HIFLOAT8,
    INT4,
    INT8,
    NumberFormat,
    float_dtype,
    format_among,
    number_format,
    numbers_in,
    pack,
    store,
)
from pytest_msprobe.extensions.npu_operators.quantization.quantization import quantized_by_row
from pytest_msprobe.extensions.npu_operators.quantization.quantized_results import QuantizedResults, SharedExponents

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

_FORMATS = (INT8, INT4, *FLOAT8S, HIFLOAT8)


@golden("NPU.npu_rms_norm_quant", OpInfo(quantized=QuantizedResults(dtype="dst_dtype")))
def npu_rms_norm_quant(
    x: Tensor,
    gamma: Tensor,
    beta: Tensor,
    scale: Tensor,
    offset: Tensor,
    epsilon: float = 1e-6,
    *,
    dst_dtype: object = None,
) -> Tensor:
    """Return round((rms_norm(x) * gamma + beta) * scale + offset) in int8, or in ``dst_dtype``.

    That is int8, quint4x2 (eight numbers in an int32) or a float of 8 bits. Raises NotImplementedError for another one.
    """
    to = format_among("npu_rms_norm_quant", "dst_dtype", dst_dtype, _FORMATS)
    normalized, _ = _rms_norm(at_least_float32(x), gamma, beta, epsilon)
    return store(normalized * at_least_float32(scale) + at_least_float32(offset), to)


@golden("NPU.npu_rms_norm_quant_v2", OpInfo(quantized=QuantizedResults(dtype="dst_dtype")))
def npu_rms_norm_quant_v2(
    x: Tensor,
    gamma: Tensor,
    scale: Tensor,
    *,
    offset: Tensor | None = None,
    beta: Tensor | None = None,
    epsilon: float = 1e-6,
    div_mode: bool = True,
    dst_dtype: object = None,
) -> tuple[Tensor, Tensor | None]:
    """Return (round((rms_norm(x) * gamma + beta) / scale + offset), rstd), * scale where ``div_mode`` is false.

    ``dst_dtype`` is as in :func:`npu_rms_norm_quant`. rstd keeps the last dimension as one; nothing is promised of it,
    here None, where x needs no gradient.
    """
    to = format_among("npu_rms_norm_quant_v2", "dst_dtype", dst_dtype, _FORMATS)
    normalized, rstd = _rms_norm(at_least_float32(x), gamma.flatten(), beta, epsilon)
    y = _quantized(normalized, scale, offset, to, div_mode=div_mode)
    return y, rstd if x.requires_grad else None


def _quantized(
    values: Tensor, scale: Tensor, offset: Tensor | None, to: NumberFormat, *, div_mode: bool | None
) -> Tensor:
    factor = at_least_float32(scale)
    shift = 0 if offset is None else at_least_float32(offset)
    return store((values * factor if div_mode is False else values / factor) + shift, to)


@golden("NPU._npu_rms_norm_backward_quant", OpInfo(quantized=QuantizedResults()), recorded=False)
def _npu_rms_norm_backward_quant(
    dy: Tensor, x: Tensor, rstd: Tensor, gamma: Tensor, scale_x: Tensor,
    *, offset_x: Tensor | None = None, div_mode: bool | None = True, quant_mode: str = "static",
    dst_type: object = 1,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return the gradients of RMS normalization: x's, / ``scale_x`` + ``offset_x`` and rounded, and gamma's.

    x's is multiplied with ``scale_x`` where ``div_mode`` is false, and in int8 or HiFloat8. Raises NotImplementedError
    for another ``quant_mode`` or ``dst_type``.
    """
    api = "_npu_rms_norm_backward_quant"
    refuse(api, quant_mode=None if quant_mode == "static" else quant_mode)
    to = format_among(api, "dst_type", dst_type, (INT8, HIFLOAT8))
    row_rstd = rstd.reshape(*x.shape[: x.dim() - gamma.dim()], *(1 for _ in gamma.shape))
    wide = (at_least_float32(dy), at_least_float32(x), at_least_float32(gamma), at_least_float32(row_rstd))
    dx, dgamma = npu_rms_norm_backward(*wide)
    return _quantized(dx, scale_x, offset_x, to, div_mode=div_mode), dgamma


@golden("NPU.npu_add_rms_norm_quant", OpInfo(quantized=QuantizedResults()))
def npu_add_rms_norm_quant(
    x1: Tensor, x2: Tensor, gamma: Tensor, scales1: Tensor, zero_points1: Tensor | None,
    beta: Tensor | None = None, scales2: Tensor | None = None, zero_points2: Tensor | None = None,
    *, axis: int = -1, epsilon: float = 1e-6, div_mode: bool = True, dst_type: object = None,
) -> tuple[Tensor, Tensor | None, Tensor]:  # fmt: skip
    """Return (y1, y2, x): x = x1 + x2, y its RMS normalization * gamma + beta, y1 and y2 that quantized.

    y1 = round(y / scales1 + zero_points1), multiplied where ``div_mode`` is false; y2 alike, None (nothing is
    promised) without ``scales2``. ``dst_type`` is int8 or a float of 8 bits. ``axis`` has no influence. Raises
    NotImplementedError for another ``dst_type``.
    """
    to = format_among("npu_add_rms_norm_quant", "dst_type", dst_type, (INT8, *FLOAT8S, HIFLOAT8))
    y, _ = _rms_norm(at_least_float32(x1) + at_least_float32(x2), gamma, beta, epsilon)
    y2 = None if scales2 is None else _quantized(y, scales2, zero_points2, to, div_mode=div_mode)
    return _quantized(y, scales1, zero_points1, to, div_mode=div_mode), y2, x1 + x2


@golden("NPU.npu_add_rms_norm_dynamic_quant", OpInfo(quantized=QuantizedResults(dtype="y_dtype")))
def npu_add_rms_norm_dynamic_quant(
    x1: Tensor, x2: Tensor, gamma: Tensor,
    *, smooth_scale1: Tensor | None = None, smooth_scale2: Tensor | None = None, beta: Tensor | None = None,
    epsilon: float = 1e-6, output_mask: Sequence[bool] | None = None, y_dtype: object = None,
) -> tuple[Tensor | None, Tensor | None, Tensor, Tensor | None, Tensor | None]:  # fmt: skip
    """Return (y1, y2, x, scale1, scale2): x = x1 + x2, y its RMS normalization * gamma + beta, quantized by row.

    y1 and scale1 are of y * smooth_scale1, y2 and scale2 of y * smooth_scale2. ``output_mask`` says which of the two
    there are, by default the first, and the second where both smooth scales are given; nothing is promised of the
    others, here None. ``y_dtype`` is as in :func:`npu_rms_norm_quant`.
    """
    to = format_among("npu_add_rms_norm_dynamic_quant", "y_dtype", y_dtype, _FORMATS)
    y, _ = _rms_norm(at_least_float32(x1) + at_least_float32(x2), gamma, beta, epsilon)
    outputs = list(output_mask) if output_mask else [True, smooth_scale1 is not None and smooth_scale2 is not None]
    results: list[tuple[Tensor | None, Tensor | None]] = [
        quantized_by_row(y if smooth is None else y * at_least_float32(smooth), to) if there_is else (None, None)
        for there_is, smooth in zip(outputs, (smooth_scale1, smooth_scale2), strict=True)
    ]
    (y1, scale1), (y2, scale2) = results
    return y1, y2, x1 + x2, scale1, scale2


@golden(
    "NPU.npu_rms_norm_dynamic_mx_quant",
    OpInfo(quantized=QuantizedResults(default=formats.E2M1, exponents=(SharedExponents(at=1),))),
)
def npu_rms_norm_dynamic_mx_quant(
    x: Tensor,
    gamma: Tensor,
    *,
    beta: Tensor | None = None,
    epsilon: float = 1e-6,
    scale_alg: int = 0,
    round_mode: str = "rint",
    dst_type: object = 296,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return (y, shared exponents, rstd) of rms_norm(x) * gamma + beta, in blocks of 32 of the last dimension.

    ``dst_type`` is a float of 4 bits, in pairs, or of 8 bits. rstd keeps the normalized dimensions as ones; nothing is
    promised of it, here None, where x needs no gradient.
    """
    how = mx_scaling("npu_rms_norm_dynamic_mx_quant", dst_type, scale_alg=scale_alg, round_mode=round_mode)
    y, rstd = _rms_norm(at_least_float32(x), gamma, beta, epsilon)
    return *mx_quantized(y, -1, how), rstd if x.requires_grad else None


@golden(
    "NPU.npu_add_rms_norm_dynamic_mx_quant",
    OpInfo(quantized=QuantizedResults(default=formats.E2M1, exponents=(SharedExponents(at=2),))),
)
def npu_add_rms_norm_dynamic_mx_quant(
    x1: Tensor,
    x2: Tensor,
    gamma: Tensor,
    *,
    beta: Tensor | None = None,
    epsilon: float = 1e-6,
    scale_alg: int = 0,
    round_mode: str = "rint",
    dst_type: object = 296,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Return (y, x, shared exponents, rstd) with x = x1 + x2, as :func:`npu_rms_norm_dynamic_mx_quant` of x."""
    how = mx_scaling("npu_add_rms_norm_dynamic_mx_quant", dst_type, scale_alg=scale_alg, round_mode=round_mode)
    normalized, rstd = _rms_norm(at_least_float32(x1) + at_least_float32(x2), gamma, beta, epsilon)
    y, exponents = mx_quantized(normalized, -1, how)
    return y, x1 + x2, exponents, rstd if x1.requires_grad or x2.requires_grad else None


def _rms_norm(x: Tensor, gamma: Tensor, beta: Tensor | None, epsilon: float) -> tuple[Tensor, Tensor]:
    normalized, rstd = npu_rms_norm(x, at_least_float32(gamma), epsilon)
    return normalized if beta is None else normalized + at_least_float32(beta), rstd


# Of a float32 the hardware takes the upper 19 bits; the bits behind say where an offset is, and that there is a scale.
_LOW_BITS = 13
_SCALE = 1 << 46
_OFFSET_AT, _OFFSET_BITS = 37, 0x1FF
_WITHOUT_OFFSET = 0x4000_FFFF_FFFF


@golden("NPU.npu_trans_quant_param")
def npu_trans_quant_param(scale: Tensor, offset: Tensor | None = None, round_mode: int | None = 0) -> Tensor:
    """Return scales as quantized products take them: int64 with the upper 19 bits of the float32, and bit 46 set.

    ``round_mode`` 1 rounds to these bits, assumed half to even, 0 cuts the others off. ``offset``, rounded and within
    [-256, 255], lies in the bits 37 to 45. One of the two may have one element for all.
    """
    bits = scale.float().view(torch.int32).long() & 0xFFFF_FFFF
    if round_mode:
        half = (1 << (_LOW_BITS - 1)) - 1
        bits = bits + half + ((bits >> _LOW_BITS) & 1)
    packed = (bits >> _LOW_BITS << _LOW_BITS) & 0xFFFF_FFFF | _SCALE
    if offset is None:
        return packed
    shift = offset.double().round().clamp(-256, 255).long() & _OFFSET_BITS
    return packed & _WITHOUT_OFFSET | shift << _OFFSET_AT


@golden("NPU.npu_convert_weight_to_int4pack")
def npu_convert_weight_to_int4pack(weight: Tensor, inner_k_tiles: int = 0) -> Tensor:
    """Return whole numbers of 4 bits, eight of the last dimension in an int32; ``inner_k_tiles`` is reserved."""
    return pack(weight.long() & 0xF, INT4)


@golden("NPU.npu_weight_quant_preprocess")
def npu_weight_quant_preprocess(
    weight: Tensor, weight_scale: Tensor, x_dtype: int, weight_dtype: int, weight_scale_dtype: int,
    weight_offset: Tensor | None = None, bias: Tensor | None = None, x_scale_dtype: int | None = None,
    k_group_size: int | None = 0,
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:  # fmt: skip
    """Return (weight, weight_scale, weight_offset, bias) for a quantized product: what they were, in another layout.

    A layout shows nowhere but in memory, as with npu_format_cast; that the scale and bias keep their numbers is
    assumed. Nothing is promised of an offset or a bias that is not given. The dtypes and the size of groups choose the
    layout.
    """
    return weight.clone(), weight_scale.clone(), _copied(weight_offset), _copied(bias)


def _copied(parameter: Tensor | None) -> Tensor | None:
    return None if parameter is None else parameter.clone()


@golden("NPU.npu_dequant_bias")
def npu_dequant_bias(
    x: Tensor,
    weight_scale: Tensor,
    activation_scale: Tensor | None,
    bias: Tensor | None,
    *,
    output_dtype: object = None,
) -> Tensor:
    """Return x * weight_scale * activation_scale for x (m, n) of int32, scales of columns (n) and rows (m).

    A ``bias`` of int32 is added to x, a float one to the result. ``output_dtype`` is float16 (the default) or bfloat16.
    """
    is_whole = bias is not None and not bias.is_floating_point()
    wide = (x + bias if bias is not None and is_whole else x).to(torch.promote_types(weight_scale.dtype, torch.float32))
    y = wide * at_least_float32(weight_scale)
    if activation_scale is not None:
        y = y * at_least_float32(activation_scale).reshape(-1, 1)
    y = y if bias is None or is_whole else y + at_least_float32(bias)
    return y.to(float_dtype(output_dtype, torch.float16))


@golden("NPU.npu_quant_conv2d", OpInfo(quantized=QuantizedResults(dtype="output_dtype", at=9)))
def npu_quant_conv2d(
    input: Tensor, weight: Tensor, scale: Tensor, strides: Sequence[int] | int = 1,
    pads: Sequence[int] | int = 0, dilations: Sequence[int] | int = 1, groups: int = 1, offset_x: int = 0,
    round_mode: str = "rint", output_dtype: object = None, bias: Tensor | None = None,
    offset: Tensor | None = None, input_dtype: object = None, weight_dtype: object = None,
) -> Tensor:  # fmt: skip
    """Return (conv2d(input, weight) + bias) * scale in ``output_dtype``, padded with ``offset_x``.

    The operands hold int8 or floats of 8 bits, with ``input_dtype`` and ``weight_dtype`` HiFloat8. ``scale`` has, for
    each channel, a float32 or its bits in an int64. Raises NotImplementedError for ``offset``, which CANN does not
    take.
    """
    refuse("npu_quant_conv2d", offset=offset)
    operands = [
        numbers_in(operand, HIFLOAT8) if number_format(dtype) is HIFLOAT8 else operand.double()
        for operand, dtype in ((input, input_dtype), (weight, weight_dtype))
    ]
    high, wide = (pads, pads) if isinstance(pads, int) else (pads[0], pads[-1])
    padded = F.pad(operands[0], (wide, wide, high, high), value=float(offset_x))
    sums = F.conv2d(
        padded,
        operands[1],
        stride=strides if isinstance(strides, int) else list(strides),
        dilation=dilations if isinstance(dilations, int) else list(dilations),
        groups=groups,
    )
    factor = scale_and_offset(scale)[0].double().reshape(-1, 1, 1)
    y = (sums if bias is None else sums + bias.double().reshape(-1, 1, 1)) * factor
    if number_format(output_dtype) is HIFLOAT8:
        return store(y, HIFLOAT8, round_mode)
    return y.to(float_dtype(output_dtype, torch.float16))


@golden("NPU.npu_quant_scatter_", OpInfo(quantized=QuantizedResults(), constraint=routing.quant_scatter))
def npu_quant_scatter_(
    self: Tensor, indices: Tensor, updates: Tensor, quant_scales: Tensor,
    quant_zero_points: Tensor | None = None, axis: int = -2, quant_axis: int = -1, reduce: str = "update",
    dst_type: object = None, round_mode: str | None = "rint",
) -> Tensor:  # fmt: skip
    """Write round(updates / quant_scales + quant_zero_points) into self, and return it.

    ``indices`` (b,) says where along ``axis`` the updates of row i of dimension 0 begin; (b, 2) says in which row as
    well. Scales and zero points run along ``quant_axis``. ``dst_type`` is int8 or a float of 8 bits. Raises
    NotImplementedError for another ``reduce``.
    """
    api = "npu_quant_scatter_"
    refuse(api, reduce=None if reduce == "update" else reduce)
    to = format_among(api, "dst_type", dst_type, (INT8, *FLOAT8S, HIFLOAT8))
    shape = [1] * updates.dim()
    shape[quant_axis] = -1
    numbers = at_least_float32(updates) / at_least_float32(quant_scales).reshape(shape)
    if quant_zero_points is not None:
        numbers = numbers + at_least_float32(quant_zero_points).reshape(shape)
    stored = store(numbers, to, round_mode or "rint")
    stored = stored if self.is_floating_point() else stored.view(self.dtype)
    places = indices.tolist() if indices.dim() == 2 else list(enumerate(indices.tolist()))
    along = axis % self.dim() - 1
    for (row, start), values in zip(places, stored, strict=True):
        self[row].narrow(along, start, values.shape[along]).copy_(values)
    return self


npu_quant_scatter = golden(
    "NPU.npu_quant_scatter", OpInfo(quantized=QuantizedResults(), constraint=routing.quant_scatter)
)(out_of_place(npu_quant_scatter_))
