"""Activations with quantized results, in float32 as a kernel computes."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from tests.support.cann.operators.by_schema import Arguments, by_schema
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


@by_schema
def npu_swiglu_quant(args: Arguments) -> tuple[Tensor, Tensor]:
    y = _swiglu(as_float32(args.x), 0, left=args.activate_left, limit=0.0, alpha=1.0, bias=0.0)
    if args.group_index is not None:
        ends = args.group_index.numpy() if args.group_list_type == 0 else args.group_index.numpy().cumsum()
        group = np.searchsorted(ends, np.arange(len(y)), side="right")
    else:
        group = np.zeros(len(y), dtype=int)
    y = (
        y
        if args.smooth_scales is None
        else y * as_float32(args.smooth_scales).reshape(len(args.smooth_scales), -1)[group]
    )
    if args.quant_mode == 0:
        y = y if args.offsets is None else y + as_float32(args.offsets).reshape(len(args.offsets), -1)[group]
        return stored(y, "int8"), torch.empty(len(y))
    scale = np.float32(127) / np.abs(y).max(-1)
    return stored(y * scale[:, None], "int8"), torch.from_numpy(scale)


@by_schema
def npu_dequant_swiglu_quant(args: Arguments) -> tuple[Tensor, Tensor]:
    ends = [len(args.x)] if args.group_index is None else args.group_index.cumsum(0).tolist()
    group = np.minimum(np.searchsorted(ends, np.arange(len(args.x)), side="right"), len(ends) - 1)

    def row(parameter: Tensor) -> np.ndarray:
        values = as_float32(parameter)
        return values[group] if values.ndim == 2 and len(values) == len(ends) else values.reshape(1, -1)

    y = as_float32(args.x)
    y = y + row(args.bias) if args.bias is not None and not args.bias.is_floating_point() else y
    y = y if args.weight_scale is None else y * row(args.weight_scale)
    y = y if args.activation_scale is None else y * as_float32(args.activation_scale).reshape(-1, 1)
    y = y + row(args.bias) if args.bias is not None and args.bias.is_floating_point() else y
    how = {"left": args.activate_left, "limit": args.clamp_limit, "alpha": args.glu_alpha, "bias": args.glu_bias}
    y = _swiglu(y, args.swiglu_mode, axis=-1 if args.activate_dim is None else args.activate_dim, **how)
    if args.quant_mode == 0:
        y = y if args.quant_scale is None else y / row(args.quant_scale)
        y = y if args.quant_offset is None else y + row(args.quant_offset)
        return stored(y, kind_of(args.dst_type)), torch.empty(len(y))
    return by_row(y if args.quant_scale is None else y * row(args.quant_scale), kind_of(args.dst_type))


@by_schema
def npu_gelu_quant(args: Arguments) -> tuple[Tensor, Tensor]:
    x = args.self.double()
    if args.approximate == "tanh":
        y = 0.5 * x * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (x + 0.044715 * x**3)))
    else:
        y = 0.5 * x * (1 + torch.erf(x / 2**0.5))
    values = as_float32(y) * (_ONE if args.input_scale is None else as_float32(args.input_scale))
    if args.quant_mode == "static":
        shift = _ONE * 0 if args.input_offset is None else as_float32(args.input_offset)
        return stored(values + shift, kind_of(args.dst_type), args.round_mode), torch.empty(0)
    return by_row(values, kind_of(args.dst_type), args.round_mode)


@by_schema
def npu_swiglu_group_quant(args: Arguments) -> tuple[Tensor, Tensor, Tensor]:
    gate, linear = _halves(as_float32(args.x), left=True)
    if args.clamp_limit > 0:
        gate, linear = np.minimum(gate, args.clamp_limit), np.clip(linear, -args.clamp_limit, args.clamp_limit)
    origin = gate * _sigmoid(gate) * linear
    kept = torch.from_numpy(origin).to(args.x.dtype) if args.output_origin else args.x.new_empty(0)
    y = origin if args.weight is None else origin * as_float32(args.weight).reshape(-1, 1)
    if args.quant_mode >= 2:
        ends = [len(args.x)] if args.group_index is None else args.group_index.cumsum(0).tolist()
        parts = [y[start:end] for start, end in zip([0, *ends], ends, strict=False)]
        if args.quant_mode == 2 and args.scale is not None:
            rows = [part * factor for part, factor in zip(parts, args.scale.numpy(), strict=True)]
            return stored(np.concatenate(rows), "hif8"), torch.empty(0), kept
        scales = np.array([np.abs(part).max() for part in parts]) / np.float32(args.dst_type_max)
        rows = [part / factor for part, factor in zip(parts, scales, strict=True)]
        return stored(np.concatenate(rows), "hif8"), torch.from_numpy(scales), kept
    kind, size = kind_of(args.dst_type), args.block_size or (128, 32)[args.quant_mode]
    steps = np.zeros((len(y), -(-y.shape[1] // size)))
    numbers = np.zeros(y.shape)
    for row, block in np.ndindex(*steps.shape):
        part = slice(block * size, (block + 1) * size)
        step = max(float(np.abs(y[row, part]).max()), 1e-4) / LARGEST[kind]
        steps[row, block] = 2.0 ** np.ceil(np.log2(step)) if args.round_scale or args.quant_mode == 1 else step
        numbers[row, part] = y[row, part] / steps[row, block]
    if args.quant_mode == 0:
        return stored(numbers, kind), torch.from_numpy(steps.astype(np.float32)), kept
    exponents = np.zeros((len(y), -(-steps.shape[1] // 2) * 2), np.uint8)
    exponents[:, : steps.shape[1]] = np.log2(steps) + 127
    return stored(numbers, kind), torch.from_numpy(exponents.reshape(len(y), -1, 2)), kept


@by_schema
def npu_swiglu_group_quant_backward(args: Arguments) -> tuple[Tensor, Tensor]:
    gate, linear = _halves(as_float32(args.x), left=True)
    limit = args.clamp_limit if args.clamp_limit > 0 else np.inf
    inner_gate, inner_linear = np.minimum(gate, limit), np.clip(linear, -limit, limit)
    grad = as_float32(args.grad_y).copy()
    grad[len(args.x) if args.group_index is None else int(args.group_index.sum()) :] = 0
    weighted = grad if args.weight is None else grad * as_float32(args.weight).reshape(-1, 1)
    s = _sigmoid(inner_gate)
    of_gate = weighted * inner_linear * s * (1 + inner_gate * (1 - s)) * (gate < limit)
    of_linear = weighted * inner_gate * s * (np.abs(linear) < limit)
    of_weight = torch.empty(0)
    if args.weight is not None and args.y_origin is not None:
        of_weight = torch.from_numpy((grad * as_float32(args.y_origin)).sum(-1)).reshape(args.weight.shape)
    return torch.from_numpy(np.concatenate([of_gate, of_linear], -1)).to(args.x.dtype), of_weight


@by_schema
def npu_swiglu_mx_quant(args: Arguments) -> tuple[Tensor, Tensor]:
    how = {
        "left": args.activate_left,
        "limit": args.clamp_limit,
        "alpha": args.glu_alpha,
        "bias": args.glu_bias,
        "axis": args.activate_dim,
    }
    y = _swiglu(as_float32(args.x), args.swiglu_mode, **how)
    scaling = {"algorithm": args.scale_alg, "mode": args.round_mode}
    if args.group_index is not None and args.axis % y.ndim == y.ndim - 2:
        return mx_groups(y, args.group_index.cumsum(0).tolist(), kind_of(args.dst_type), **scaling)
    return mx(y, args.axis, kind_of(args.dst_type), **scaling)


def _two_ways(
    y: np.ndarray, group_index: Tensor | None, dst_type: Any, **how: Any
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    kind, rows = kind_of(dst_type), mx(y, -1, kind_of(dst_type), **how)
    columns = mx(y, -2, kind, **how) if group_index is None else mx_groups(y, group_index.tolist(), kind, **how)
    return *rows, *columns


@by_schema
def npu_swiglu_mx_quant_with_dual_axis(args: Arguments) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    y = _swiglu(as_float32(args.x), 0, left=args.activate_left, limit=0.0, alpha=1.0, bias=0.0)
    return _two_ways(y, args.group_index, args.dst_type, algorithm=args.scale_alg, mode=args.round_mode)


@by_schema
def _npu_swiglu_backward_mx_quant_with_dual_axis(args: Arguments) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    gate, linear = _halves(as_float32(args.x), left=args.activate_left)
    grad, s = as_float32(args.y_grad), _sigmoid(gate)
    parts = [grad * linear * s * (1 + gate - gate * s), grad * gate * s]
    y = np.concatenate(parts if args.activate_left else parts[::-1], -1)
    return _two_ways(y, args.group_index, args.dst_type, algorithm=args.scale_alg, mode=args.round_mode)
