"""Quantization with a scale in float of blocks, rows or channels, in float32 as a kernel computes; and back."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from tests.support.cann.operators.by_schema import Arguments, by_schema
from tests.support.cann.operators.mx_quantization import as_float32, mx
from tests.support.cann.small_floats import LARGEST, dtype_of, kind_of, loaded, stored


def _divide(x: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Return x / scale, 0 for a scale of 0."""
    return np.divide(x, scale, out=np.zeros(np.broadcast_shapes(x.shape, scale.shape), np.float32), where=scale != 0)


def _blocks(
    x: np.ndarray, kind: str, largest: float, least: float, rows: int, columns: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return (x / scale, scales) of a matrix, block by block."""
    divided = np.zeros(x.shape, np.float32)
    scales = np.zeros((-(-x.shape[0] // rows), -(-x.shape[1] // columns)), np.float32)
    for row, column in np.ndindex(*scales.shape):
        part = (slice(row * rows, (row + 1) * rows), slice(column * columns, (column + 1) * columns))
        scale = np.abs(x[part]).max() / np.float32(largest or LARGEST[kind])
        scales[row, column] = min(scale, 1 / least) if least else scale
        divided[part] = _divide(x[part], scales[row, column])
    return divided, scales


@by_schema
def npu_dynamic_block_quant(args: Arguments) -> tuple[Tensor, Tensor]:
    kind = kind_of(args.dst_type)
    matrices = as_float32(args.x).reshape(-1, *args.x.shape[-2:])
    how = (kind, args.dst_type_max, args.min_scale, args.row_block_size, args.col_block_size)
    found = [_blocks(matrix, *how) for matrix in matrices]
    divided, scales = (np.stack(each) for each in zip(*found, strict=True))
    y = stored(divided.reshape(args.x.shape), kind, args.round_mode)
    return y, torch.from_numpy(scales.reshape(*args.x.shape[:-2], *scales.shape[-2:]))


@by_schema
def npu_grouped_dynamic_block_quant(args: Arguments) -> tuple[Tensor, Tensor]:
    kind, ends = kind_of(args.dst_type), args.group_list.tolist()
    how = (kind, args.dst_type_max, args.min_scale, args.row_block_size, args.col_block_size)
    matrix = as_float32(args.x)
    divided = np.zeros(args.x.shape, np.float32)
    scales = np.zeros(
        (args.x.shape[0] // args.row_block_size + len(ends), -(-args.x.shape[1] // args.col_block_size)), np.float32
    )
    for group, (start, end) in enumerate(zip([0, *ends], ends, strict=False)):
        if end > start:
            divided[start:end], found = _blocks(matrix[start:end], *how)
            first = start // args.row_block_size + group
            scales[first : first + len(found)] = found
    return stored(divided, kind, args.round_mode), torch.from_numpy(scales)


@by_schema
def npu_quant_max(args: Arguments) -> tuple[Tensor, Tensor]:
    ends = args.group_list.tolist() if args.group_list is not None and len(args.group_list) > 1 else [len(args.x)]
    group_of_row = np.searchsorted(ends, np.arange(len(args.x)), side="right")
    factors = args.scale.numpy()[group_of_row].reshape(-1, *(1 for _ in args.x.shape[1:]))
    largest = [args.x[torch.from_numpy(group_of_row == group)].abs().max() for group in range(len(ends))]
    return stored(as_float32(args.x) * factors, kind_of(args.dst_dtype), args.round_mode), torch.stack(largest)


@by_schema
def npu_kronecker_quant(args: Arguments) -> tuple[Tensor, Tensor]:
    left, right = as_float32(args.kronecker_p1), as_float32(args.kronecker_p2)
    rotated = np.einsum("ij,kjl,lm->kim", left, as_float32(args.x), right)
    if args.dst_dtype in (None, 3):
        scales = np.abs(rotated).reshape(len(args.x), -1).max(-1) / np.float32(7 / (args.clip_ratio or 1.0))
        return stored(_divide(rotated, scales[:, None, None]), "int4"), torch.from_numpy(scales)
    algorithm = 2 if args.dst_type_max else 0
    return mx(rotated.reshape(len(args.x), -1), -1, "e2m1", algorithm=algorithm, dst_type_max=args.dst_type_max or 0.0)


@by_schema
def npu_rotate_quant(args: Arguments) -> tuple[Tensor, Tensor]:
    size, values = args.rotation.shape[-1], as_float32(args.x)
    rotations = np.broadcast_to(as_float32(args.rotation), (values.shape[-1] // size, size, size))
    parts = [values[..., k * size : (k + 1) * size] @ rotations[k] for k in range(len(rotations))]
    rotated, kind = np.concatenate(parts, -1), kind_of(args.dst_dtype)
    if kind.startswith("int"):
        scales = np.abs(rotated).max(-1) / np.float32(LARGEST[kind])
        return stored(_divide(rotated, scales[..., None]), kind), torch.from_numpy(scales)
    how = {
        "algorithm": args.scale_alg or 0,
        "dst_type_max": args.dst_type_max or 0.0,
        "mode": args.round_mode or "rint",
    }
    return mx(rotated, -1, kind, **how)


@by_schema
def npu_quantize(args: Arguments) -> Tensor:
    x = as_float32(args.self)
    at = args.axis if args.div_mode or args.axis == -2 else x.ndim - 1
    moved = np.moveaxis(x, at, -1)
    factor = as_float32(args.scales).reshape(-1)
    shift = 0 if args.zero_points is None else as_float32(args.zero_points).reshape(-1)
    y = (moved / factor if args.div_mode else moved * factor) + shift
    return stored(np.moveaxis(y, -1, at), kind_of(args.dtype))


@by_schema
def npu_anti_quant(args: Arguments) -> Tensor:
    kind = "int4" if args.x.dtype is torch.int32 else "hif8" if args.x.dtype is torch.uint8 else "e4m3"
    numbers = loaded(args.x, kind)
    shifted = numbers if args.offset is None else numbers + args.offset.double().numpy()
    return torch.from_numpy(shifted * args.scale.double().numpy()).to(dtype_of(args.dst_dtype, torch.float16))


def _smoothed(x: Tensor, smooth_scales: Tensor | None, group_index: Tensor | None, quant_mode: str) -> np.ndarray:
    values = as_float32(x)
    if smooth_scales is None:
        return values
    smooth = as_float32(smooth_scales)
    if group_index is not None:
        rows = np.arange(values[..., 0].size)
        smooth = smooth[np.searchsorted(group_index.numpy(), rows, side="right")].reshape(values.shape)
    return values * (smooth[:, None] if quant_mode == "perchannel" else smooth)


_AXES: dict[str, int | None] = {"pertoken": -1, "perchannel": -2, "pertensor": None}


@by_schema
def npu_dynamic_quant(args: Arguments) -> tuple[Tensor, Tensor]:
    values, kind = _smoothed(args.input, args.smooth_scales, args.group_index, args.quant_mode), kind_of(args.dst_type)
    largest = np.abs(values).max(axis=_AXES[args.quant_mode], keepdims=True)
    scale = largest / np.float32(args.dst_type_max or LARGEST[kind])
    return stored(_divide(values, scale), kind), _without(scale, args.quant_mode)


@by_schema
def npu_dynamic_quant_asymmetric(args: Arguments) -> tuple[Tensor, Tensor, Tensor]:
    values, kind = _smoothed(args.input, args.smooth_scales, args.group_index, args.quant_mode), kind_of(args.dst_type)
    high, low = (pick(values, axis=_AXES[args.quant_mode], keepdims=True) for pick in (np.max, np.min))
    largest = args.dst_type_max or LARGEST[kind]
    span = {"int8": 255.0, "int4": 15.0}.get(kind, 2 * largest)
    scale = (high - low) / np.float32(span)
    offset = np.float32(largest) - high / scale
    y = stored(values / scale + offset, kind)
    return y, _without(scale, args.quant_mode), _without(offset, args.quant_mode)


def _without(reduced: np.ndarray, quant_mode: str) -> Tensor:
    axis = _AXES[quant_mode]
    return torch.from_numpy(reduced.reshape(1) if axis is None else reduced.squeeze(axis))


@by_schema
def npu_group_quant(args: Arguments) -> Tensor:
    group_of_row = np.searchsorted(args.group_index.numpy(), np.arange(len(args.x)), side="right")
    shift = 0.0 if args.offset is None else float(args.offset)
    return stored(
        as_float32(args.x) * as_float32(args.scale)[group_of_row] + np.float32(shift), kind_of(args.dst_dtype)
    )
