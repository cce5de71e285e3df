"""Normalizations with quantized results, in float32 as a kernel computes."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from tests.support.cann.operators.by_schema import Arguments, by_schema
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


@by_schema
def npu_rms_norm_quant(args: Arguments) -> Tensor:
    y, _ = _normalized(as_float32(args.x), args.gamma, args.beta, args.epsilon)
    return _static(y, args.scale, args.offset, kind_of(args.dst_dtype), divides=False)


@by_schema
def npu_rms_norm_quant_v2(args: Arguments) -> tuple[Tensor, Tensor]:
    y, rstd = _normalized(as_float32(args.x), args.gamma, args.beta, args.epsilon)
    return _static(y, args.scale, args.offset, kind_of(args.dst_dtype), divides=args.div_mode), torch.from_numpy(rstd)


@by_schema
def _npu_rms_norm_backward_quant(args: Arguments) -> tuple[Tensor, Tensor]:
    grad, values, factor = as_float32(args.dy), as_float32(args.x), as_float32(args.gamma)
    inverse = as_float32(args.rstd).reshape(*args.x.shape[:-1], 1)
    mean = (grad * factor * values * inverse).mean(-1, keepdims=True)
    dx = (grad * factor - inverse * values * mean) * inverse
    dgamma = (inverse * values * grad).reshape(-1, args.x.shape[-1]).sum(0)
    return _static(dx, args.scale_x, args.offset_x, kind_of(args.dst_type), divides=args.div_mode), torch.from_numpy(
        dgamma
    )


@by_schema
def npu_add_rms_norm_quant(args: Arguments) -> tuple[Tensor, Tensor, Tensor]:
    y, _ = _normalized(_sum(args.x1, args.x2), args.gamma, args.beta, args.epsilon)
    first = _static(y, args.scales1, args.zero_points1, kind_of(args.dst_type), divides=args.div_mode)
    if args.scales2 is None:
        return first, torch.empty_like(first), args.x1 + args.x2
    return (
        first,
        _static(y, args.scales2, args.zero_points2, kind_of(args.dst_type), divides=args.div_mode),
        args.x1 + args.x2,
    )


@by_schema
def npu_add_rms_norm_dynamic_quant(args: Arguments) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    y, _ = _normalized(_sum(args.x1, args.x2), args.gamma, args.beta, args.epsilon)
    smooth = [_ONE if each is None else as_float32(each) for each in (args.smooth_scale1, args.smooth_scale2)]
    (y1, scale1), (y2, scale2) = (by_row(y * factor, kind_of(args.y_dtype)) for factor in smooth)
    return y1, y2, args.x1 + args.x2, scale1, scale2


@by_schema
def npu_rms_norm_dynamic_mx_quant(args: Arguments) -> tuple[Tensor, Tensor, Tensor]:
    y, rstd = _normalized(as_float32(args.x), args.gamma, args.beta, args.epsilon)
    return *mx(y, -1, kind_of(args.dst_type), algorithm=args.scale_alg, mode=args.round_mode), torch.from_numpy(rstd)


@by_schema
def npu_add_rms_norm_dynamic_mx_quant(args: Arguments) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    normalized, rstd = _normalized(_sum(args.x1, args.x2), args.gamma, args.beta, args.epsilon)
    y, exponents = mx(normalized, -1, kind_of(args.dst_type), algorithm=args.scale_alg, mode=args.round_mode)
    return y, args.x1 + args.x2, exponents, torch.from_numpy(rstd)
