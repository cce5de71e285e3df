"""Normalizations whose result, or whose gradient, is quantized."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_msprobe.engine.values.number_formats import (
    FLOAT8S,
    HIFLOAT8,
    INT4,
    INT8,
    NumberFormat,
    format_among,
    store,
)
from pytest_msprobe.extensions.npu_operators.layers.normalization import npu_rms_norm, npu_rms_norm_backward
from pytest_msprobe.extensions.npu_operators.quantization.microscaling import mx_quantized, mx_scaling
from pytest_msprobe.extensions.npu_operators.quantization.quantization import quantized_by_row
from pytest_msprobe.extensions.npu_operators.reference_arguments import at_least_float32, refuse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

_FORMATS = (INT8, INT4, *FLOAT8S, HIFLOAT8)


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
    each = rstd.reshape(*x.shape[: x.dim() - gamma.dim()], *(1 for _ in gamma.shape))
    wide = (at_least_float32(dy), at_least_float32(x), at_least_float32(gamma), at_least_float32(each))
    dx, dgamma = npu_rms_norm_backward(*wide)
    return _quantized(dx, scale_x, offset_x, to, div_mode=div_mode), dgamma


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
    wanted = list(output_mask) if output_mask else [True, smooth_scale1 is not None and smooth_scale2 is not None]
    found: list[tuple[Tensor | None, Tensor | None]] = [
        quantized_by_row(y if smooth is None else y * at_least_float32(smooth), to) if there_is else (None, None)
        for there_is, smooth in zip(wanted, (smooth_scale1, smooth_scale2), strict=True)
    ]
    (y1, scale1), (y2, scale2) = found
    return y1, y2, x1 + x2, scale1, scale2


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
