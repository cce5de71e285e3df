"""Quantization with shared exponents, block by block in loops, in float32 as a kernel computes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tests.support.cann.small_floats import EMAX, LARGEST, dtype_of, kind_of, loaded, quantize, stored


def exponent_of(largest: float, kind: str, algorithm: int, dst_type_max: float = 0.0, bound: float = 0.0) -> int:
    """Return the exponent of a block by its largest magnitude, from its bits as a float32."""
    if largest == 0:
        return -127
    if algorithm == 0:
        return max(_power(largest) - EMAX[kind], -127)
    if algorithm == 2 and (kind, dst_type_max) in (("e2m1", 0.0), ("e2m1", 6.0), ("e2m1", 7.0), ("e1m2", 1.875)):
        narrow = float(torch.tensor(largest).bfloat16())
        limit = {0.0: 0x40, 6.0: 0x40, 7.0: 0x60, 1.875: 0x70}[dst_type_max]
        mantissa = (int(np.float32(narrow).view(np.uint32)) >> 16) & 0x7F
        return max(_power(narrow) + int(mantissa > limit) - EMAX[kind], -127)
    ratio = np.float32(max(largest, bound)) / np.float32(dst_type_max or LARGEST[kind])
    return max(_power(float(ratio)) + int(int(ratio.view(np.uint32)) & 0x7FFFFF > 0), -127)


def _power(value: float) -> int:
    return (int(np.float32(value).view(np.uint32)) >> 23 & 0xFF) - 127


def along(x: np.ndarray, axis: int, kind: str, block: int = 32, **how: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return (numbers, exponents + 127), the blocks of an axis where it is; what is stored of them is odd or even."""
    mode = how.pop("mode", "rint")
    lines = np.moveaxis(x, axis, -1)
    blocks = -(-lines.shape[-1] // block)
    numbers = np.zeros(lines.shape)
    exponents = np.zeros((*lines.shape[:-1], 2 * -(-blocks // 2)), dtype=np.uint8)
    for line in np.ndindex(*lines.shape[:-1]):
        for place in range(blocks):
            part = slice(place * block, (place + 1) * block)
            values = lines[line][part]
            exponent = exponent_of(float(np.abs(values).max()), kind, **how)
            exponents[line][place] = exponent + 127
            numbers[line][part] = quantize(values.astype(np.float64) / 2.0**exponent, kind, mode)
    return np.moveaxis(numbers, -1, axis), np.moveaxis(exponents, -1, axis)


def in_pairs(exponents: np.ndarray, axis: int) -> Tensor:
    """Return exponents with those of two neighbouring blocks in a last dimension."""
    even, odd = (np.take(exponents, range(first, exponents.shape[axis], 2), axis) for first in (0, 1))
    return torch.from_numpy(np.stack([even, odd], -1))


def mx(x: np.ndarray, axis: int, kind: str, **how: Any) -> tuple[Tensor, Tensor]:
    """Return (stored numbers, exponents in pairs)."""
    numbers, exponents = along(x, axis % x.ndim, kind, **how)
    return stored(numbers, kind), in_pairs(exponents, axis % x.ndim)


def mx_groups(x: np.ndarray, ends: list[int], kind: str, **how: Any) -> tuple[Tensor, Tensor]:
    """Return (stored numbers, exponents in pairs) of rows, group by group."""
    numbers = np.zeros(x.shape)
    pairs = torch.zeros(x.shape[0] // 64 + len(ends), x.shape[1], 2, dtype=torch.uint8)
    for group, (start, end) in enumerate(zip([0, *ends], ends, strict=False)):
        if end > start:
            numbers[start:end], exponents = along(x[start:end], 0, kind, **how)
            found = in_pairs(exponents, 0)
            pairs[start // 64 + group : start // 64 + group + len(found)] = found
    return stored(numbers, kind), pairs


def as_float32(x: Tensor) -> np.ndarray:
    """Return a tensor's numbers in float32."""
    return x.detach().float().numpy()


def npu_dynamic_mx_quant(
    input: Tensor,  # noqa: A002
    *,
    axis: int = -1,
    round_mode: str = "rint",
    dst_type: Any = 296,
    block_size: int = 32,
    scale_alg: int | None = 0,
    dst_type_max: float = 0.0,
    max_low_bound: float = 0.0,
) -> tuple[Tensor, Tensor]:
    kind = kind_of(dst_type)
    return mx(
        as_float32(input),
        axis,
        kind,
        block=block_size,
        mode=round_mode,
        algorithm=scale_alg or 0,
        dst_type_max=dst_type_max,
        bound=max_low_bound,
    )


def npu_dynamic_mx_quant_with_dual_axis(
    input: Tensor,  # noqa: A002
    *,
    round_mode: str = "rint",
    dst_type: Any = 296,
    scale_alg: int = 0,
    dst_type_max: float | None = 0.0,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    how = {"mode": round_mode, "algorithm": scale_alg, "dst_type_max": dst_type_max or 0.0}
    x, kind = as_float32(input), kind_of(dst_type)
    return *mx(x, -1, kind, **how), *mx(x, -2, kind, **how)


def npu_anti_mx_quant(
    x: Tensor, mxscale: Tensor, *, axis: int | None = -1, dst_type: Any = 15, src_type: Any = 292
) -> Tensor:
    numbers = loaded(x, kind_of(src_type) if x.dtype is torch.uint8 else "e4m3")
    at = (-1 if axis is None else axis) % numbers.ndim
    result = np.empty(numbers.shape)
    for place in np.ndindex(*numbers.shape):
        pair, which = divmod(place[at] // 32, 2)
        exponent = int(mxscale[(*place[:at], pair, *place[at + 1 :], which)]) - 127
        result[place] = numbers[place] * 2.0**exponent
    return torch.from_numpy(result).to(dtype_of(dst_type, torch.bfloat16))


def npu_dynamic_block_mx_quant(
    input: Tensor,  # noqa: A002
    *,
    round_mode: str = "rint",
    dst_type: Any = 296,
    scale_alg: int = 0,
    dst_type_max: float = 0.0,
) -> tuple[Tensor, Tensor, Tensor]:
    x, kind = as_float32(input), kind_of(dst_type)
    rows, columns = x.shape[-2:]
    numbers = np.zeros(x.shape)
    by_row = np.zeros((*x.shape[:-1], 2 * -(-columns // 64)), dtype=np.uint8)
    by_column = np.zeros((*x.shape[:-2], 2 * -(-rows // 64), columns), dtype=np.uint8)
    for outer, top, left in _tiles(x.shape):
        part = (*outer, slice(top, top + 32), slice(left, left + 32))
        exponent = exponent_of(float(np.abs(x[part]).max()), kind, scale_alg, dst_type_max)
        numbers[part] = quantize(x[part].astype(np.float64) / 2.0**exponent, kind, round_mode)
        by_row[(*outer, part[-2], left // 32)] = exponent + 127
        by_column[(*outer, top // 32, part[-1])] = exponent + 127
    return stored(numbers, kind), in_pairs(by_row, x.ndim - 1), in_pairs(by_column, x.ndim - 2)


def _tiles(shape: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], int, int]]:
    for outer in np.ndindex(*shape[:-2]):
        for top in range(0, shape[-2], 32):
            for left in range(0, shape[-1], 32):
                yield outer, top, left


def npu_dynamic_dual_level_mx_quant(
    input: Tensor,  # noqa: A002
    *,
    smooth_scale: Tensor | None = None,
    round_mode: str = "rint",
) -> tuple[Tensor, Tensor, Tensor]:
    x = as_float32(input if smooth_scale is None else input * smooth_scale)
    count = -(-x.shape[-1] // 512)
    scales = np.stack([np.abs(x[..., 512 * k : 512 * (k + 1)]).max(-1) for k in range(count)], -1) / np.float32(6)
    levelled = x / np.maximum(np.repeat(scales, 512, -1)[..., : x.shape[-1]], 1e-30)
    narrow = torch.from_numpy(levelled).to(input.dtype)
    y, exponents = mx(as_float32(narrow), -1, "e2m1", mode=round_mode, algorithm=0)
    return y, torch.from_numpy(scales), exponents


def npu_dual_level_quant_matmul(
    x1: Tensor,
    x2: Tensor,
    x1_level0_scale: Tensor,
    x2_level0_scale: Tensor,
    x1_level1_scale: Tensor,
    x2_level1_scale: Tensor,
    *,
    bias: Tensor | None = None,
    output_dtype: Any = 15,
) -> Tensor:
    left, right = loaded(x1, "e2m1"), loaded(x2, "e2m1")
    first, second = x1_level1_scale.flatten(1).numpy(), x2_level1_scale.flatten(1).numpy()
    total = np.zeros((len(left), len(right)))
    for k in range(0, left.shape[1], 32):
        powers = np.add.outer(first[:, k // 32].astype(int), second[:, k // 32].astype(int)) - 254
        outer = np.outer(x1_level0_scale[:, k // 512].double().numpy(), x2_level0_scale[k // 512].double().numpy())
        total += left[:, k : k + 32] @ right[:, k : k + 32].T * 2.0**powers * outer
    total = total if bias is None else total + bias.double().numpy()
    return torch.from_numpy(total).to(dtype_of(output_dtype, torch.bfloat16))


def npu_grouped_dynamic_mx_quant(
    x: Tensor,
    group_index: Tensor,
    *,
    round_mode: str = "rint",
    dst_type: Any = 23,
    blocksize: int = 32,
    scale_alg: int | None = 0,
    dst_type_max: float | None = 0.0,
) -> tuple[Tensor, Tensor]:
    return mx_groups(
        as_float32(x),
        group_index.tolist(),
        kind_of(dst_type),
        block=blocksize,
        mode=round_mode,
        algorithm=scale_alg or 0,
        dst_type_max=dst_type_max or 0.0,
    )
