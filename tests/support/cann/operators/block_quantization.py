"""Quantization with a scale in float of blocks, rows or channels, in float32 as a kernel computes; and back."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

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


def npu_dynamic_block_quant(
    x: Tensor,
    *,
    min_scale: float = 0.0,
    round_mode: str = "rint",
    dst_type: Any = 1,
    row_block_size: int = 1,
    col_block_size: int = 128,
    dst_type_max: float = 0.0,
) -> tuple[Tensor, Tensor]:
    kind = kind_of(dst_type)
    matrices = as_float32(x).reshape(-1, *x.shape[-2:])
    how = (kind, dst_type_max, min_scale, row_block_size, col_block_size)
    found = [_blocks(matrix, *how) for matrix in matrices]
    divided, scales = (np.stack(each) for each in zip(*found, strict=True))
    y = stored(divided.reshape(x.shape), kind, round_mode)
    return y, torch.from_numpy(scales.reshape(*x.shape[:-2], *scales.shape[-2:]))


def npu_grouped_dynamic_block_quant(
    x: Tensor,
    group_list: Tensor,
    *,
    min_scale: float = 0.0,
    round_mode: str = "rint",
    dst_type: Any = 291,
    row_block_size: int = 1,
    col_block_size: int = 128,
    group_list_type: int = 0,
    dst_type_max: float = 0.0,
) -> tuple[Tensor, Tensor]:
    kind, ends = kind_of(dst_type), group_list.tolist()
    how = (kind, dst_type_max, min_scale, row_block_size, col_block_size)
    matrix = as_float32(x)
    divided = np.zeros(x.shape, np.float32)
    scales = np.zeros((x.shape[0] // row_block_size + len(ends), -(-x.shape[1] // col_block_size)), np.float32)
    for group, (start, end) in enumerate(zip([0, *ends], ends, strict=False)):
        if end > start:
            divided[start:end], found = _blocks(matrix[start:end], *how)
            first = start // row_block_size + group
            scales[first : first + len(found)] = found
    return stored(divided, kind, round_mode), torch.from_numpy(scales)


def npu_quant_max(
    x: Tensor, scale: Tensor, *, round_mode: str = "rint", dst_dtype: Any = 291, group_list: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    ends = group_list.tolist() if group_list is not None and len(group_list) > 1 else [len(x)]
    group_of_row = np.searchsorted(ends, np.arange(len(x)), side="right")
    factors = scale.numpy()[group_of_row].reshape(-1, *(1 for _ in x.shape[1:]))
    largest = [x[torch.from_numpy(group_of_row == group)].abs().max() for group in range(len(ends))]
    return stored(as_float32(x) * factors, kind_of(dst_dtype), round_mode), torch.stack(largest)


def npu_kronecker_quant(
    x: Tensor,
    kronecker_p1: Tensor,
    kronecker_p2: Tensor,
    clip_ratio: float | None = None,
    dst_dtype: Any = None,
    dst_type_max: float | None = None,
) -> tuple[Tensor, Tensor]:
    left, right = as_float32(kronecker_p1), as_float32(kronecker_p2)
    rotated = np.einsum("ij,kjl,lm->kim", left, as_float32(x), right)
    if dst_dtype in (None, 3):
        scales = np.abs(rotated).reshape(len(x), -1).max(-1) / np.float32(7 / (clip_ratio or 1.0))
        return stored(_divide(rotated, scales[:, None, None]), "int4"), torch.from_numpy(scales)
    algorithm = 2 if dst_type_max else 0
    return mx(rotated.reshape(len(x), -1), -1, "e2m1", algorithm=algorithm, dst_type_max=dst_type_max or 0.0)


def npu_rotate_quant(
    x: Tensor,
    rotation: Tensor,
    *,
    alpha: Tensor | None = None,
    dst_dtype: Any = None,
    axis: int | None = -1,
    round_mode: str | None = "rint",
    scale_alg: int | None = 0,
    dst_type_max: float | None = 0.0,
    transpose_y: bool | None = False,
) -> tuple[Tensor, Tensor]:
    size, values = rotation.shape[-1], as_float32(x)
    rotations = np.broadcast_to(as_float32(rotation), (values.shape[-1] // size, size, size))
    parts = [values[..., k * size : (k + 1) * size] @ rotations[k] for k in range(len(rotations))]
    rotated, kind = np.concatenate(parts, -1), kind_of(dst_dtype)
    if kind.startswith("int"):
        scales = np.abs(rotated).max(-1) / np.float32(LARGEST[kind])
        return stored(_divide(rotated, scales[..., None]), kind), torch.from_numpy(scales)
    how = {"algorithm": scale_alg or 0, "dst_type_max": dst_type_max or 0.0, "mode": round_mode or "rint"}
    return mx(rotated, -1, kind, **how)


def npu_quantize(
    self: Tensor,
    scales: Tensor,
    zero_points: Tensor | None,
    dtype: Any,
    axis: int = 1,
    div_mode: bool = True,
) -> Tensor:
    x = as_float32(self)
    at = axis if div_mode or axis == -2 else x.ndim - 1
    moved = np.moveaxis(x, at, -1)
    factor = as_float32(scales).reshape(-1)
    shift = 0 if zero_points is None else as_float32(zero_points).reshape(-1)
    y = (moved / factor if div_mode else moved * factor) + shift
    return stored(np.moveaxis(y, -1, at), kind_of(dtype))


def npu_anti_quant(
    x: Tensor,
    scale: Tensor,
    *,
    offset: Tensor | None = None,
    dst_dtype: Any = None,
    src_dtype: Any = None,
) -> Tensor:
    kind = "int4" if x.dtype is torch.int32 else "hif8" if x.dtype is torch.uint8 else "e4m3"
    numbers = loaded(x, kind)
    shifted = numbers if offset is None else numbers + offset.double().numpy()
    return torch.from_numpy(shifted * scale.double().numpy()).to(dtype_of(dst_dtype, torch.float16))


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


def npu_dynamic_quant(
    input: Tensor,  # noqa: A002
    *,
    smooth_scales: Tensor | None = None,
    group_index: Tensor | None = None,
    dst_type: Any = None,
    quant_mode: str = "pertoken",
    dst_type_max: float = 0.0,
) -> tuple[Tensor, Tensor]:
    values, kind = _smoothed(input, smooth_scales, group_index, quant_mode), kind_of(dst_type)
    largest = np.abs(values).max(axis=_AXES[quant_mode], keepdims=True)
    scale = largest / np.float32(dst_type_max or LARGEST[kind])
    return stored(_divide(values, scale), kind), _without(scale, quant_mode)


def npu_dynamic_quant_asymmetric(
    input: Tensor,  # noqa: A002
    *,
    smooth_scales: Tensor | None = None,
    group_index: Tensor | None = None,
    dst_type: Any = None,
    quant_mode: str = "pertoken",
    dst_type_max: float = 0.0,
) -> tuple[Tensor, Tensor, Tensor]:
    values, kind = _smoothed(input, smooth_scales, group_index, quant_mode), kind_of(dst_type)
    high, low = (pick(values, axis=_AXES[quant_mode], keepdims=True) for pick in (np.max, np.min))
    largest = dst_type_max or LARGEST[kind]
    span = {"int8": 255.0, "int4": 15.0}.get(kind, 2 * largest)
    scale = (high - low) / np.float32(span)
    offset = np.float32(largest) - high / scale
    y = stored(values / scale + offset, kind)
    return y, _without(scale, quant_mode), _without(offset, quant_mode)


def _without(reduced: np.ndarray, quant_mode: str) -> Tensor:
    axis = _AXES[quant_mode]
    return torch.from_numpy(reduced.reshape(1) if axis is None else reduced.squeeze(axis))


def npu_group_quant(
    x: Tensor,
    scale: Tensor,
    group_index: Tensor,
    *,
    offset: Tensor | None = None,
    dst_dtype: Any = None,
) -> Tensor:
    group_of_row = np.searchsorted(group_index.numpy(), np.arange(len(x)), side="right")
    shift = 0.0 if offset is None else float(offset)
    return stored(as_float32(x) * as_float32(scale)[group_of_row] + np.float32(shift), kind_of(dst_dtype))
