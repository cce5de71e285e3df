"""Parameters of quantized products as hardware takes them, and what is quantized on its way into a product or cache."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F

from pytest_msprobe.engine.values.number_formats import (
    FLOAT8S,
    HIFLOAT8,
    INT4,
    INT8,
    float_dtype,
    format_among,
    number_format,
    numbers_in,
    pack,
    store,
)
from pytest_msprobe.extensions.npu_operators.matmul.packed_numbers import scale_and_offset
from pytest_msprobe.extensions.npu_operators.reference_arguments import at_least_float32, refuse
from pytest_msprobe.extensions.npu_operators.twins import out_of_place

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

# Of a float32 the hardware takes the upper 19 bits; the bits behind say where an offset is, and that there is a scale.
_LOW_BITS = 13
_SCALE = 1 << 46
_OFFSET_AT, _OFFSET_BITS = 37, 0x1FF
_WITHOUT_OFFSET = 0x4000_FFFF_FFFF


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


def npu_convert_weight_to_int4pack(weight: Tensor, inner_k_tiles: int = 0) -> Tensor:
    """Return whole numbers of 4 bits, eight of the last dimension in an int32; ``inner_k_tiles`` is reserved."""
    return pack(weight.long() & 0xF, INT4)


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
        numbers_in(each, HIFLOAT8) if number_format(dtype) is HIFLOAT8 else each.double()
        for each, dtype in ((input, input_dtype), (weight, weight_dtype))
    ]
    high, wide = (pads, pads) if isinstance(pads, int) else (pads[0], pads[-1])
    padded = F.pad(operands[0], (wide, wide, high, high), value=float(offset_x))
    found = F.conv2d(
        padded,
        operands[1],
        stride=strides if isinstance(strides, int) else list(strides),
        dilation=dilations if isinstance(dilations, int) else list(dilations),
        groups=groups,
    )
    factor = scale_and_offset(scale)[0].double().reshape(-1, 1, 1)
    y = (found if bias is None else found + bias.double().reshape(-1, 1, 1)) * factor
    if number_format(output_dtype) is HIFLOAT8:
        return store(y, HIFLOAT8, round_mode)
    return y.to(float_dtype(output_dtype, torch.float16))


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


npu_quant_scatter = out_of_place(npu_quant_scatter_)
