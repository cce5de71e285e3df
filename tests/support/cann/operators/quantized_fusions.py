"""Normalizations with quantized results, in float32 as a kernel computes."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from tests.support.cann.operators.mx_quantization import as_float32, mx
from tests.support.cann.small_floats import LARGEST, kind_of, stored

_ONE = np.float32(1)


def _normalized(x: np.ndarray, gamma: Tensor, beta: Tensor | None, epsilon: float) -> tuple[np.ndarray, np.ndarray]:
    rms = np.sqrt((x.astype(np.float64) ** 2).mean(-1, keepdims=True) + epsilon)
    y = x / rms * as_float32(gamma).reshape(-1)
    y = y if beta is None else y + as_float32(beta).reshape(-1)
    return y.astype(np.float32), (1 / rms).astype(np.float32)


def _static(y: np.ndarray, scale: Tensor, offset: Tensor | None, kind: str, *, divides: bool | None) -> Tensor:
    shift = _ONE * 0 if offset is None else as_float32(offset)
    return stored((y / as_float32(scale) if divides is not False else y * as_float32(scale)) + shift, kind)


def by_row(y: np.ndarray, kind: str, mode: str = "rint") -> tuple[Tensor, Tensor]:
    """Return the numbers of rows and the scale of each."""
    scale = np.abs(y).max(-1, keepdims=True).astype(np.float32) / np.float32(LARGEST[kind])
    return stored(y / np.where(scale == 0, _ONE, scale), kind, mode), torch.from_numpy(scale.squeeze(-1))


def _sum(x1: Tensor, x2: Tensor) -> np.ndarray:
    return as_float32(x1) + as_float32(x2)


def npu_rms_norm_quant(
    x: Tensor,
    gamma: Tensor,
    beta: Tensor,
    scale: Tensor,
    offset: Tensor,
    epsilon: float = 1e-6,
    *,
    dst_dtype: Any = None,
) -> Tensor:
    y, _ = _normalized(as_float32(x), gamma, beta, epsilon)
    return _static(y, scale, offset, kind_of(dst_dtype), divides=False)


def npu_rms_norm_quant_v2(
    x: Tensor,
    gamma: Tensor,
    scale: Tensor,
    *,
    offset: Tensor | None = None,
    beta: Tensor | None = None,
    epsilon: float = 1e-6,
    div_mode: bool = True,
    dst_dtype: Any = None,
) -> tuple[Tensor, Tensor]:
    y, rstd = _normalized(as_float32(x), gamma, beta, epsilon)
    return _static(y, scale, offset, kind_of(dst_dtype), divides=div_mode), torch.from_numpy(rstd)


def _npu_rms_norm_backward_quant(
    dy: Tensor,
    x: Tensor,
    rstd: Tensor,
    gamma: Tensor,
    scale_x: Tensor,
    *,
    offset_x: Tensor | None = None,
    div_mode: bool | None = True,
    quant_mode: str = "static",
    dst_type: Any = 1,
) -> tuple[Tensor, Tensor]:
    grad, values, factor = as_float32(dy), as_float32(x), as_float32(gamma)
    inverse = as_float32(rstd).reshape(*x.shape[:-1], 1)
    mean = (grad * factor * values * inverse).mean(-1, keepdims=True)
    dx = (grad * factor - inverse * values * mean) * inverse
    dgamma = (inverse * values * grad).reshape(-1, x.shape[-1]).sum(0)
    return _static(dx, scale_x, offset_x, kind_of(dst_type), divides=div_mode), torch.from_numpy(dgamma)


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
    dst_type: Any = None,
) -> tuple[Tensor, Tensor, Tensor]:
    y, _ = _normalized(_sum(x1, x2), gamma, beta, epsilon)
    first = _static(y, scales1, zero_points1, kind_of(dst_type), divides=div_mode)
    if scales2 is None:
        return first, torch.empty_like(first), x1 + x2
    return first, _static(y, scales2, zero_points2, kind_of(dst_type), divides=div_mode), x1 + x2


def npu_add_rms_norm_dynamic_quant(
    x1: Tensor,
    x2: Tensor,
    gamma: Tensor,
    *,
    smooth_scale1: Tensor | None = None,
    smooth_scale2: Tensor | None = None,
    beta: Tensor | None = None,
    epsilon: float = 1e-6,
    output_mask: list[bool] | None = None,
    y_dtype: Any = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    y, _ = _normalized(_sum(x1, x2), gamma, beta, epsilon)
    smooth = [_ONE if each is None else as_float32(each) for each in (smooth_scale1, smooth_scale2)]
    (y1, scale1), (y2, scale2) = (by_row(y * factor, kind_of(y_dtype)) for factor in smooth)
    return y1, y2, x1 + x2, scale1, scale2


def npu_rms_norm_dynamic_mx_quant(
    x: Tensor,
    gamma: Tensor,
    *,
    beta: Tensor | None = None,
    epsilon: float = 1e-6,
    scale_alg: int = 0,
    round_mode: str = "rint",
    dst_type: Any = 296,
) -> tuple[Tensor, Tensor, Tensor]:
    y, rstd = _normalized(as_float32(x), gamma, beta, epsilon)
    return *mx(y, -1, kind_of(dst_type), algorithm=scale_alg, mode=round_mode), torch.from_numpy(rstd)


def npu_add_rms_norm_dynamic_mx_quant(
    x1: Tensor,
    x2: Tensor,
    gamma: Tensor,
    *,
    beta: Tensor | None = None,
    epsilon: float = 1e-6,
    scale_alg: int = 0,
    round_mode: str = "rint",
    dst_type: Any = 296,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    normalized, rstd = _normalized(_sum(x1, x2), gamma, beta, epsilon)
    y, exponents = mx(normalized, -1, kind_of(dst_type), algorithm=scale_alg, mode=round_mode)
    return y, x1 + x2, exponents, torch.from_numpy(rstd)
