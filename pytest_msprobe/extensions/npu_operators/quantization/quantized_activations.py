"""Activations whose result is quantized, some of what is dequantized first."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F

from msprobe_hooks.dump.effects import GROUP_SIZES, Effects, ValidRows
from pytest_msprobe.engine.replay.ops.operators import golden
from pytest_msprobe.engine.replay.ops.traits import OpInfo
from pytest_msprobe.extensions.npu_operators.arguments import at_least_float32, refuse
from pytest_msprobe.extensions.npu_operators.experts.moe import each_row
from pytest_msprobe.extensions.npu_operators.inputs import moe_routing as routing
from pytest_msprobe.extensions.npu_operators.quantization import number_formats as formats
from pytest_msprobe.extensions.npu_operators.quantization.number_formats import (
    E4M3,
    E5M2,
    FLOAT4S,
    FLOAT8S,
    HIFLOAT8,
    INT8,
    NumberFormat,
    format_among,
    store,
)
from pytest_msprobe.extensions.npu_operators.quantization.quantization import quantized_by_row
from pytest_msprobe.extensions.npu_operators.quantization.quantized_results import QuantizedResults, SharedExponents

if TYPE_CHECKING:
    from torch import Tensor

# What CANN's block quantization of SwiGLU takes for the least largest magnitude.
_LEAST = 1e-4


@golden(
    "NPU.npu_swiglu_quant",
    OpInfo(quantized=QuantizedResults(), constraint=routing.groups_of_rows("group_index", "group_list_type")),
)
def npu_swiglu_quant(
    x: Tensor,
    *,
    smooth_scales: Tensor | None = None,
    offsets: Tensor | None = None,
    group_index: Tensor | None = None,
    activate_left: bool = False,
    quant_mode: int = 0,
    group_list_type: int = 0,
    dst_type: object = None,
) -> tuple[Tensor, Tensor | None]:
    """Return (int8, scale) of y = silu(a) * b * smooth_scales, for the halves b, a of the last dimension.

    ``activate_left`` swaps the halves. With ``quant_mode`` 1 the numbers are round(y * scale), scale = 127 / max|y| of
    each row, as CANN's kernel returns it; with 0 they are round(y + offsets), and nothing is promised of a scale.
    ``group_index`` holds the ends of groups of rows, their sizes with ``group_list_type`` 1, each of which has its
    ``smooth_scales`` and ``offsets``. Raises NotImplementedError for another ``dst_type`` than int8: how four bits are
    packed here is not documented.
    """
    api = "npu_swiglu_quant"
    to = format_among(api, "dst_type", dst_type, (INT8,))
    y = _activated(at_least_float32(x), left=activate_left)
    rows = y.shape[:-1].numel()

    def of_rows(parameter: Tensor) -> Tensor:
        wide = at_least_float32(parameter)
        wide = wide.unsqueeze(-1) if wide.dim() == 1 else wide
        if group_index is None:
            return wide
        return each_row(api, wide, group_index, rows, cumulative=group_list_type == 0).reshape(*y.shape[:-1], -1)

    y = y if smooth_scales is None else y * of_rows(smooth_scales)
    if quant_mode == 0:
        return store(y if offsets is None else y + of_rows(offsets), to), None
    numbers, step = quantized_by_row(y, to)
    return numbers, 1 / step


def _activated(x: Tensor, *, left: bool, dim: int = -1) -> Tensor:
    a, b = x.chunk(2, dim)
    return F.silu(a) * b if left else F.silu(b) * a


def swiglu_variant(
    x: Tensor,
    *,
    swiglu_mode: int,
    activate_left: bool,
    clamp_limit: float,
    glu_alpha: float,
    glu_bias: float,
    dim: int = -1,
) -> Tensor:
    """Return SwiGLU of a kind: 0 silu(a) * b, 1 and 2 a * sigmoid(glu_alpha a) * (b + glu_bias), 3 silu(a) * b.

    a and b are the second and the first half along ``dim``, swapped by ``activate_left``, with mode 1 the even and the
    odd elements. From mode 1 on b is kept within [-clamp_limit, clamp_limit] and a, in mode 3 silu(a), below the limit.
    """
    first, second = (x[..., ::2], x[..., 1::2]) if swiglu_mode == 1 else x.chunk(2, dim)
    a, b = (first, second) if activate_left or swiglu_mode == 1 else (second, first)
    if swiglu_mode == 0:
        return F.silu(a) * b
    b = b.clamp(-clamp_limit, clamp_limit)
    if swiglu_mode == 3:
        return F.silu(a).clamp(max=clamp_limit) * b
    a = a.clamp(max=clamp_limit)
    return a * torch.sigmoid(glu_alpha * a) * (b + glu_bias)


@golden(
    "NPU.npu_dequant_swiglu_quant",
    OpInfo(quantized=QuantizedResults(), constraint=routing.groups_of_rows("group_index", are_sizes=True)),
    Effects(valid_rows=ValidRows("group_index", holds=GROUP_SIZES)),
)
def npu_dequant_swiglu_quant(
    x: Tensor,
    *, weight_scale: Tensor | None = None, activation_scale: Tensor | None = None, bias: Tensor | None = None,
    quant_scale: Tensor | None = None, quant_offset: Tensor | None = None, group_index: Tensor | None = None,
    activate_left: bool = False, quant_mode: int = 0, dst_type: object = None, round_mode: int | None = None,
    activate_dim: int | None = None, swiglu_mode: int = 0, clamp_limit: float = 7.0, glu_alpha: float = 1.702,
    glu_bias: float = 1.0,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    """Return (numbers, scale) of y, :func:`swiglu_variant` of x * weight_scale * activation_scale.

    A ``bias`` of int32 is added to x before, a float one behind the scales. ``quant_mode`` 1 gives y * quant_scale by
    row with its scale, 0 round(y / quant_scale + quant_offset) without one (None, nothing is promised).
    ``group_index`` holds how many rows each group has, which has its row of ``weight_scale``, ``bias``, ``quant_scale``
    and ``quant_offset``; behind the last group nothing is promised. ``dst_type`` is int8 or a float of 8 or 4 bits, in
    pairs. Raises NotImplementedError for a ``round_mode`` that is not rint (0), and another ``dst_type``.
    """
    api = "npu_dequant_swiglu_quant"
    refuse(api, round_mode=round_mode or None)
    to = format_among(api, "dst_type", dst_type, (INT8, *FLOAT8S, *FLOAT4S))

    def of_rows(parameter: Tensor) -> Tensor:
        values = at_least_float32(parameter)
        if group_index is None or values.dim() < 2 or values.shape[0] == 1:
            return values
        groups = each_row(api, values, group_index, x.shape[:-1].numel(), cumulative=False)
        return F.pad(groups, (0, 0, 0, x.shape[:-1].numel() - len(groups))).reshape(*x.shape[:-1], -1)

    is_whole = bias is not None and not bias.is_floating_point()
    # int32 holds more than float32
    wide = at_least_float32(x if x.is_floating_point() else x.double())
    wide = wide + of_rows(bias) if bias is not None and is_whole else wide
    wide = wide if weight_scale is None else wide * of_rows(weight_scale)
    if activation_scale is not None:
        wide = wide * at_least_float32(activation_scale).reshape(*x.shape[:-1], 1)
    wide = wide if bias is None or is_whole else wide + of_rows(bias)
    y = swiglu_variant(
        wide,
        swiglu_mode=swiglu_mode,
        activate_left=activate_left,
        clamp_limit=clamp_limit,
        glu_alpha=glu_alpha,
        glu_bias=glu_bias,
        dim=-1 if activate_dim is None else activate_dim,
    )
    if quant_mode == 0:
        y = y if quant_scale is None else y / of_rows(quant_scale)
        return store(y if quant_offset is None else y + of_rows(quant_offset), to), None
    return quantized_by_row(y if quant_scale is None else y * of_rows(quant_scale), to)


@golden("NPU.npu_gelu_quant", OpInfo(quantized=QuantizedResults()))
def npu_gelu_quant(
    self: Tensor,
    *,
    input_scale: Tensor | None = None,
    input_offset: Tensor | None = None,
    approximate: str = "none",
    quant_mode: str = "dynamic",
    dst_type: object = None,
    round_mode: str = "rint",
) -> tuple[Tensor, Tensor | None]:
    """Return (numbers, scale) of y = gelu(self) * input_scale.

    ``quant_mode`` dynamic gives y / scale, scale = max|y| / largest of each row, static round(y + input_offset) and no
    scale (None, nothing is promised). ``approximate`` is ``"none"`` (by erf) or ``"tanh"``; ``dst_type`` int8 or a
    float of 8 bits.
    """
    to = format_among("npu_gelu_quant", "dst_type", dst_type, (INT8, *FLOAT8S, HIFLOAT8))
    y = F.gelu(at_least_float32(self), approximate=approximate)
    y = y if input_scale is None else y * at_least_float32(input_scale)
    if quant_mode == "static":
        return store(y if input_offset is None else y + at_least_float32(input_offset), to, round_mode), None
    scale = y.abs().amax(-1, keepdim=True) / to.largest
    return store((y / scale).masked_fill(scale == 0, 0.0), to, round_mode), scale.squeeze(-1)


@golden(
    "NPU.npu_swiglu_group_quant",
    OpInfo(
        quantized=QuantizedResults(
            default=formats.E5M2, also=(formats.HIFLOAT8,), exponents=(SharedExponents(at=1),), algorithm=1
        ),
        constraint=routing.groups_of_rows("group_index", are_sizes=True),
    ),
    Effects(valid_rows=ValidRows("group_index", holds=GROUP_SIZES)),
)
def npu_swiglu_group_quant(
    x: Tensor,
    *, weight: Tensor | None = None, group_index: Tensor | None = None, scale: Tensor | None = None,
    dst_type: object = 291, quant_mode: int = 0, block_size: int = 0, round_scale: bool = False,
    clamp_limit: float = -1.0, dst_type_max: float = 15.0, output_origin: bool = False,
) -> tuple[Tensor, Tensor | None, Tensor | None]:  # fmt: skip
    """Return (numbers, scales, origin): origin = silu(a) * b of the halves of x, the numbers of origin * weight.

    A ``clamp_limit`` above 0 keeps a below it and b within it. ``quant_mode`` 0 has a scale in float32 for each 128
    numbers, max / largest, rounded up to a power of two with ``round_scale``; 1 has shared exponents of each 32 that
    are found alike; 2 multiplies with ``scale`` and 3 divides by max / ``dst_type_max``, both for each group of rows,
    into HiFloat8. In the modes 0 and 1 a largest magnitude below 1e-4 counts as that. ``group_index`` holds how many
    rows each group has; behind the last nothing is promised, nor of what is None: the scales in mode 2, and the origin
    without ``output_origin``. Raises NotImplementedError for another mode.
    """
    api = "npu_swiglu_group_quant"
    refuse(api, quant_mode=None if quant_mode in (0, 1, 2, 3) else quant_mode)
    origin = _clamped_swiglu(at_least_float32(x), clamp_limit)
    y = origin if weight is None else origin * at_least_float32(weight).reshape(*x.shape[:-1], 1)
    origin_or_none = origin.detach() if output_origin else None
    if quant_mode in (0, 1):
        to = format_among(api, "dst_type", dst_type, (E5M2, E4M3))
        size = block_size or (128 if quant_mode == 0 else 32)
        return *_by_blocks(y, to, size, rounded_up=round_scale or quant_mode == 1, exponents=quant_mode == 1), (
            origin_or_none
        )
    numbers, scales = _hifloat8_by_group(y, group_index, scale if quant_mode == 2 else None, dst_type_max)
    return numbers, scales, origin_or_none


def _clamped_swiglu(x: Tensor, limit: float) -> Tensor:
    a, b = x.chunk(2, -1)
    if limit > 0:
        a, b = a.clamp(max=limit), b.clamp(-limit, limit)
    return F.silu(a) * b


def _by_blocks(y: Tensor, to: NumberFormat, size: int, *, rounded_up: bool, exponents: bool) -> tuple[Tensor, Tensor]:
    """Return the numbers of blocks of the last dimension, and the scales or, in pairs, the exponents of these."""
    padded = torch.unflatten(F.pad(y.detach(), (0, -y.shape[-1] % size)), -1, (-1, size))
    scales = padded.abs().amax(-1).clamp(min=_LEAST) / to.largest
    power = torch.frexp(scales).exponent
    # frexp's significand is at least a half, which is where a power of two lies
    power = power - (torch.frexp(scales).mantissa == 0.5).int()
    scales = torch.ldexp(torch.ones_like(scales), power) if rounded_up else scales
    numbers = store((padded / scales.unsqueeze(-1)).flatten(-2)[..., : y.shape[-1]], to)
    if not exponents:
        return numbers, scales
    stored = (power + 127).clamp(0, 254).to(torch.uint8)
    return numbers, torch.unflatten(F.pad(stored, (0, stored.shape[-1] % 2)), -1, (-1, 2))


def _hifloat8_by_group(
    y: Tensor, group_index: Tensor | None, factors: Tensor | None, largest: float
) -> tuple[Tensor, Tensor | None]:
    """Return HiFloat8 of y * factor of its group of rows, or of y / scale, scale = max|y| / largest, and the scales."""
    flat = y.detach().flatten(0, -2)
    sizes = [len(flat)] if group_index is None else group_index.tolist()
    groups = torch.split_with_sizes(flat[: sum(sizes)], sizes)
    rest = flat[sum(sizes) :]
    if factors is not None:
        scaled = [rows * factor for rows, factor in zip(groups, at_least_float32(factors), strict=True)]
        return store(torch.cat([*scaled, rest]).reshape(y.shape), HIFLOAT8), None
    scales = torch.stack([rows.abs().amax() if rows.numel() else flat.new_zeros(()) for rows in groups]) / largest
    divided = [(rows / scale).masked_fill(scale == 0, 0.0) for rows, scale in zip(groups, scales, strict=True)]
    return store(torch.cat([*divided, rest]).reshape(y.shape), HIFLOAT8), scales


@golden(
    "NPU.npu_swiglu_group_quant_backward",
    OpInfo(constraint=routing.groups_of_rows("group_index", are_sizes=True)),
    recorded=False,
)
def npu_swiglu_group_quant_backward(
    grad_y: Tensor,
    x: Tensor,
    *,
    weight: Tensor | None = None,
    y_origin: Tensor | None = None,
    group_index: Tensor | None = None,
    clamp_limit: float = 0.0,
) -> tuple[Tensor, Tensor | None]:
    """Return the gradients for x and ``weight`` of silu(a) * b * weight, a below and b within ``clamp_limit``.

    ``grad_y`` is that of the numbers before they were quantized. A limit of 0 or below is none. Rows behind the last
    group, whose sizes are ``group_index``, get zeros. weight's is the sum of grad_y * y_origin, and without it nothing
    is promised of one (None).
    """
    rows = x.shape[:-1].numel()
    in_groups = torch.arange(rows, device=x.device) < (rows if group_index is None else int(group_index.sum()))
    shown = in_groups.reshape(*x.shape[:-1], 1)
    wide = at_least_float32(x.detach()).requires_grad_()
    with torch.enable_grad():
        y = _clamped_swiglu(wide, clamp_limit)
    grad = at_least_float32(grad_y) * shown
    weighted = grad if weight is None else grad * at_least_float32(weight).reshape(*x.shape[:-1], 1)
    (grad_x,) = torch.autograd.grad(y, wide, weighted)
    if weight is None or y_origin is None:
        return grad_x, None
    return grad_x, (grad * at_least_float32(y_origin)).sum(-1).reshape(weight.shape)
