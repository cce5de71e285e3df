"""Normalizations and activations whose result is quantized to int8."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch.nn.functional as F

from pytest_msprobe.engine.replay.references.experts.expert_groups import each_row
from pytest_msprobe.engine.replay.references.layers.normalization import npu_rms_norm
from pytest_msprobe.engine.replay.references.quantization.quantization import quantized_by_row, refuse_but_int8, rounded
from pytest_msprobe.engine.replay.references.reference_arguments import at_least_float32, refuse

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch
    from torch import Tensor


def npu_rms_norm_quant(
    x: Tensor,
    gamma: Tensor,
    beta: Tensor,
    scale: Tensor,
    offset: Tensor,
    epsilon: float = 1e-6,
    dst_dtype: torch.dtype | None = None,
) -> Tensor:
    """Return round((rms_norm(x) * gamma + beta) * scale + offset) in int8.

    Raises NotImplementedError for another ``dst_dtype``.
    """
    refuse_but_int8("npu_rms_norm_quant", dst_dtype=dst_dtype)
    normalized = _rms_norm(at_least_float32(x), gamma, beta, epsilon)
    return rounded(normalized * at_least_float32(scale) + at_least_float32(offset))


def npu_add_rms_norm_quant(
    x1: Tensor,
    x2: Tensor,
    gamma: Tensor,
    scales1: Tensor,
    zero_points1: Tensor | None,
    beta: Tensor | None = None,
    scales2: Tensor | None = None,
    zero_points2: Tensor | None = None,
    *,
    axis: int = -1,
    epsilon: float = 1e-6,
    div_mode: bool = True,
) -> tuple[Tensor, Tensor | None, Tensor]:
    """Return (y1, y2, x): x = x1 + x2, y its RMS normalization * gamma + beta, y1 and y2 that quantized to int8.

    y1 = round(y / scales1 + zero_points1), multiplied where ``div_mode`` is false; y2 alike, None (nothing is
    promised) without ``scales2``. ``axis`` has no influence.
    """
    y = _rms_norm(at_least_float32(x1) + at_least_float32(x2), gamma, beta, epsilon)

    def quantized(scales: Tensor, zero_points: Tensor | None) -> Tensor:
        scale = at_least_float32(scales)
        shift = 0 if zero_points is None else at_least_float32(zero_points)
        return rounded((y / scale if div_mode else y * scale) + shift)

    y2 = None if scales2 is None else quantized(scales2, zero_points2)
    return quantized(scales1, zero_points1), y2, x1 + x2


def npu_add_rms_norm_dynamic_quant(
    x1: Tensor,
    x2: Tensor,
    gamma: Tensor,
    *,
    smooth_scale1: Tensor | None = None,
    smooth_scale2: Tensor | None = None,
    beta: Tensor | None = None,
    epsilon: float = 1e-6,
    output_mask: Sequence[bool] | None = None,
    y_dtype: torch.dtype | None = None,
) -> tuple[Tensor | None, Tensor | None, Tensor, Tensor | None, Tensor | None]:
    """Return (y1, y2, x, scale1, scale2): x = x1 + x2, y its RMS normalization * gamma + beta, quantized by row.

    y1 and scale1 are of y * smooth_scale1, y2 and scale2 of y * smooth_scale2. ``output_mask`` says which of the two
    there are, by default the first, and the second where both smooth scales are given; nothing is promised of the
    others, here None. Raises NotImplementedError for another ``y_dtype`` than int8.
    """
    refuse_but_int8("npu_add_rms_norm_dynamic_quant", y_dtype=y_dtype)
    y = _rms_norm(at_least_float32(x1) + at_least_float32(x2), gamma, beta, epsilon)
    wanted = list(output_mask) if output_mask else [True, smooth_scale1 is not None and smooth_scale2 is not None]
    found: list[tuple[Tensor | None, Tensor | None]] = [
        quantized_by_row(y if smooth is None else y * at_least_float32(smooth)) if there_is else (None, None)
        for there_is, smooth in zip(wanted, (smooth_scale1, smooth_scale2), strict=True)
    ]
    (y1, scale1), (y2, scale2) = found
    return y1, y2, x1 + x2, scale1, scale2


def _rms_norm(x: Tensor, gamma: Tensor, beta: Tensor | None, epsilon: float) -> Tensor:
    normalized = npu_rms_norm(x, at_least_float32(gamma), epsilon)[0]
    return normalized if beta is None else normalized + at_least_float32(beta)


def npu_swiglu_quant(
    x: Tensor,
    *,
    smooth_scales: Tensor | None = None,
    offsets: Tensor | None = None,
    group_index: Tensor | None = None,
    activate_left: bool = False,
    quant_mode: int = 0,
    group_list_type: int = 0,
    dst_type: torch.dtype | None = None,
) -> tuple[Tensor, Tensor]:
    """Return (int8, scale) of silu(a) * b * smooth_scales, quantized by row, for the halves b, a of the last dimension.

    ``activate_left`` swaps the halves. ``group_index`` holds the ends of groups of rows, their sizes with
    ``group_list_type`` 1, each of which has its ``smooth_scales``. Raises NotImplementedError for static
    quantization (``quant_mode`` 0) and another ``dst_type`` than int8.
    """
    refuse("npu_swiglu_quant", quant_mode_0=True if quant_mode == 0 else None)
    refuse_but_int8("npu_swiglu_quant", dst_type=dst_type)
    left, right = at_least_float32(x).chunk(2, -1)
    y = F.silu(left) * right if activate_left else F.silu(right) * left
    if smooth_scales is not None:
        smooth = at_least_float32(smooth_scales)
        smooth = smooth.unsqueeze(-1) if smooth.dim() == 1 else smooth
        if group_index is not None:
            rows = y.shape[:-1].numel()
            smooth = each_row("npu_swiglu_quant", smooth, group_index, rows, cumulative=group_list_type == 0)
            smooth = smooth.reshape(*y.shape[:-1], -1)
        y = y * smooth
    return quantized_by_row(y)
