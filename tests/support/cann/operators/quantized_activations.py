"""Activations with quantized results, in float32 as a kernel computes."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from tests.support.cann.operators.mx_quantization import as_float32, mx, mx_groups
from tests.support.cann.operators.quantized_fusions import by_row
from tests.support.cann.small_floats import LARGEST, kind_of, stored

_ONE = np.float32(1)


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return _ONE / (_ONE + np.exp(-x))


def _halves(x: np.ndarray, *, left: bool, axis: int = -1) -> tuple[np.ndarray, np.ndarray]:
    """Return what is activated and what it is multiplied with."""
    first, second = np.split(x, 2, axis)
    return (first, second) if left else (second, first)


def _swiglu(
    x: np.ndarray, mode: int, *, left: bool, limit: float, alpha: float, bias: float, axis: int = -1
) -> np.ndarray:
    gate, linear = (x[..., 0::2], x[..., 1::2]) if mode == 1 else _halves(x, left=left, axis=axis)
    if mode == 0:
        return gate * _sigmoid(gate) * linear
    linear = np.minimum(np.maximum(linear, -limit), limit)
    if mode == 3:
        return np.minimum(gate * _sigmoid(gate), limit) * linear
    gate = np.minimum(gate, limit)
    return gate * _sigmoid(np.float32(alpha) * gate) * (linear + np.float32(bias))


def npu_swiglu_quant(
    x: Tensor,
    *,
    smooth_scales: Tensor | None = None,
    offsets: Tensor | None = None,
    group_index: Tensor | None = None,
    activate_left: bool = False,
    quant_mode: int = 0,
    group_list_type: int = 0,
    dst_type: Any = None,
) -> tuple[Tensor, Tensor]:
    y = _swiglu(as_float32(x), 0, left=activate_left, limit=0.0, alpha=1.0, bias=0.0)
    if group_index is not None:
        ends = group_index.numpy() if group_list_type == 0 else group_index.numpy().cumsum()
        group = np.searchsorted(ends, np.arange(len(y)), side="right")
    else:
        group = np.zeros(len(y), dtype=int)
    y = y if smooth_scales is None else y * as_float32(smooth_scales).reshape(len(smooth_scales), -1)[group]
    if quant_mode == 0:
        y = y if offsets is None else y + as_float32(offsets).reshape(len(offsets), -1)[group]
        return stored(y, "int8"), torch.empty(len(y))
    scale = np.float32(127) / np.abs(y).max(-1)
    return stored(y * scale[:, None], "int8"), torch.from_numpy(scale)


def npu_dequant_swiglu_quant(
    x: Tensor,
    *,
    weight_scale: Tensor | None = None,
    activation_scale: Tensor | None = None,
    bias: Tensor | None = None,
    quant_scale: Tensor | None = None,
    quant_offset: Tensor | None = None,
    group_index: Tensor | None = None,
    activate_left: bool = False,
    quant_mode: int = 0,
    dst_type: Any = None,
    round_mode: int | None = None,
    activate_dim: int | None = None,
    swiglu_mode: int = 0,
    clamp_limit: float = 7.0,
    glu_alpha: float = 1.702,
    glu_bias: float = 1.0,
) -> tuple[Tensor, Tensor]:
    ends = [len(x)] if group_index is None else group_index.cumsum(0).tolist()
    group = np.minimum(np.searchsorted(ends, np.arange(len(x)), side="right"), len(ends) - 1)

    def row(parameter: Tensor) -> np.ndarray:
        values = as_float32(parameter)
        return values[group] if values.ndim == 2 and len(values) == len(ends) else values.reshape(1, -1)

    y = as_float32(x)
    y = y + row(bias) if bias is not None and not bias.is_floating_point() else y
    y = y if weight_scale is None else y * row(weight_scale)
    y = y if activation_scale is None else y * as_float32(activation_scale).reshape(-1, 1)
    y = y + row(bias) if bias is not None and bias.is_floating_point() else y
    how = {"left": activate_left, "limit": clamp_limit, "alpha": glu_alpha, "bias": glu_bias}
    y = _swiglu(y, swiglu_mode, axis=-1 if activate_dim is None else activate_dim, **how)
    if quant_mode == 0:
        y = y if quant_scale is None else y / row(quant_scale)
        y = y if quant_offset is None else y + row(quant_offset)
        return stored(y, kind_of(dst_type)), torch.empty(len(y))
    return by_row(y if quant_scale is None else y * row(quant_scale), kind_of(dst_type))


def npu_gelu_quant(
    self: Tensor,
    *,
    input_scale: Tensor | None = None,
    input_offset: Tensor | None = None,
    approximate: str = "none",
    quant_mode: str = "dynamic",
    dst_type: Any = None,
    round_mode: str = "rint",
) -> tuple[Tensor, Tensor]:
    x = self.double()
    if approximate == "tanh":
        y = 0.5 * x * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (x + 0.044715 * x**3)))
    else:
        y = 0.5 * x * (1 + torch.erf(x / 2**0.5))
    values = as_float32(y) * (_ONE if input_scale is None else as_float32(input_scale))
    if quant_mode == "static":
        shift = _ONE * 0 if input_offset is None else as_float32(input_offset)
        return stored(values + shift, kind_of(dst_type), round_mode), torch.empty(0)
    return by_row(values, kind_of(dst_type), round_mode)


def npu_swiglu_group_quant(
    x: Tensor,
    *,
    weight: Tensor | None = None,
    group_index: Tensor | None = None,
    scale: Tensor | None = None,
    dst_type: Any = 291,
    quant_mode: int = 0,
    block_size: int = 0,
    round_scale: bool = False,
    clamp_limit: float = -1.0,
    dst_type_max: float = 15.0,
    output_origin: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    gate, linear = _halves(as_float32(x), left=True)
    if clamp_limit > 0:
        gate, linear = np.minimum(gate, clamp_limit), np.clip(linear, -clamp_limit, clamp_limit)
    origin = gate * _sigmoid(gate) * linear
    kept = torch.from_numpy(origin).to(x.dtype) if output_origin else x.new_empty(0)
    y = origin if weight is None else origin * as_float32(weight).reshape(-1, 1)
    if quant_mode >= 2:
        ends = [len(x)] if group_index is None else group_index.cumsum(0).tolist()
        parts = [y[start:end] for start, end in zip([0, *ends], ends, strict=False)]
        if quant_mode == 2 and scale is not None:
            rows = [part * factor for part, factor in zip(parts, scale.numpy(), strict=True)]
            return stored(np.concatenate(rows), "hif8"), torch.empty(0), kept
        scales = np.array([np.abs(part).max() for part in parts]) / np.float32(dst_type_max)
        rows = [part / factor for part, factor in zip(parts, scales, strict=True)]
        return stored(np.concatenate(rows), "hif8"), torch.from_numpy(scales), kept
    kind, size = kind_of(dst_type), block_size or (128, 32)[quant_mode]
    steps = np.zeros((len(y), -(-y.shape[1] // size)))
    numbers = np.zeros(y.shape)
    for row, block in np.ndindex(*steps.shape):
        part = slice(block * size, (block + 1) * size)
        step = max(float(np.abs(y[row, part]).max()), 1e-4) / LARGEST[kind]
        steps[row, block] = 2.0 ** np.ceil(np.log2(step)) if round_scale or quant_mode == 1 else step
        numbers[row, part] = y[row, part] / steps[row, block]
    if quant_mode == 0:
        return stored(numbers, kind), torch.from_numpy(steps.astype(np.float32)), kept
    exponents = np.zeros((len(y), -(-steps.shape[1] // 2) * 2), np.uint8)
    exponents[:, : steps.shape[1]] = np.log2(steps) + 127
    return stored(numbers, kind), torch.from_numpy(exponents.reshape(len(y), -1, 2)), kept


def npu_swiglu_group_quant_backward(
    grad_y: Tensor,
    x: Tensor,
    *,
    weight: Tensor | None = None,
    y_origin: Tensor | None = None,
    group_index: Tensor | None = None,
    clamp_limit: float = 0.0,
) -> tuple[Tensor, Tensor]:
    gate, linear = _halves(as_float32(x), left=True)
    limit = clamp_limit if clamp_limit > 0 else np.inf
    inner_gate, inner_linear = np.minimum(gate, limit), np.clip(linear, -limit, limit)
    grad = as_float32(grad_y).copy()
    grad[len(x) if group_index is None else int(group_index.sum()) :] = 0
    weighted = grad if weight is None else grad * as_float32(weight).reshape(-1, 1)
    s = _sigmoid(inner_gate)
    of_gate = weighted * inner_linear * s * (1 + inner_gate * (1 - s)) * (gate < limit)
    of_linear = weighted * inner_gate * s * (np.abs(linear) < limit)
    of_weight = torch.empty(0)
    if weight is not None and y_origin is not None:
        of_weight = torch.from_numpy((grad * as_float32(y_origin)).sum(-1)).reshape(weight.shape)
    return torch.from_numpy(np.concatenate([of_gate, of_linear], -1)).to(x.dtype), of_weight


def npu_swiglu_mx_quant(
    x: Tensor,
    *,
    group_index: Tensor | None = None,
    activate_dim: int = -1,
    activate_left: bool = False,
    swiglu_mode: int = 0,
    clamp_limit: float = 7.0,
    glu_alpha: float = 1.702,
    glu_bias: float = 1.0,
    group_mode: int = 0,
    axis: int = -1,
    dst_type: Any = 296,
    round_mode: str = "rint",
    scale_alg: int = 0,
    max_dtype_value: float = 0,
) -> tuple[Tensor, Tensor]:
    how = {"left": activate_left, "limit": clamp_limit, "alpha": glu_alpha, "bias": glu_bias, "axis": activate_dim}
    y = _swiglu(as_float32(x), swiglu_mode, **how)
    scaling = {"algorithm": scale_alg, "mode": round_mode}
    if group_index is not None and axis % y.ndim == y.ndim - 2:
        return mx_groups(y, group_index.cumsum(0).tolist(), kind_of(dst_type), **scaling)
    return mx(y, axis, kind_of(dst_type), **scaling)


def _two_ways(
    y: np.ndarray, group_index: Tensor | None, dst_type: Any, **how: Any
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    kind, rows = kind_of(dst_type), mx(y, -1, kind_of(dst_type), **how)
    columns = mx(y, -2, kind, **how) if group_index is None else mx_groups(y, group_index.tolist(), kind, **how)
    return *rows, *columns


def npu_swiglu_mx_quant_with_dual_axis(
    x: Tensor,
    *,
    group_index: Tensor | None = None,
    activate_left: bool = True,
    round_mode: str = "rint",
    scale_alg: int = 1,
    dst_type: Any = 24,
    dst_type_max: float = 0,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    y = _swiglu(as_float32(x), 0, left=activate_left, limit=0.0, alpha=1.0, bias=0.0)
    return _two_ways(y, group_index, dst_type, algorithm=scale_alg, mode=round_mode)


def _npu_swiglu_backward_mx_quant_with_dual_axis(
    x: Tensor,
    y_grad: Tensor,
    *,
    group_index: Tensor | None = None,
    activate_left: bool = True,
    round_mode: str = "rint",
    scale_alg: int = 1,
    dst_type: Any = 24,
    dst_type_max: float = 0,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    gate, linear = _halves(as_float32(x), left=activate_left)
    grad, s = as_float32(y_grad), _sigmoid(gate)
    parts = [grad * linear * s * (1 + gate - gate * s), grad * gate * s]
    y = np.concatenate(parts if activate_left else parts[::-1], -1)
    return _two_ways(y, group_index, dst_type, algorithm=scale_alg, mode=round_mode)
