"""Quantization with shared exponents, block by block in loops, in float32 as a kernel computes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tests.support.cann.operators.by_schema import Arguments, by_schema
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


@by_schema
def npu_dynamic_mx_quant(args: Arguments) -> tuple[Tensor, Tensor]:
    kind = kind_of(args.dst_type)
    return mx(
        as_float32(args.input), args.axis, kind, block=args.block_size, mode=args.round_mode,
        algorithm=args.scale_alg or 0, dst_type_max=args.dst_type_max, bound=args.max_low_bound,
    )  # fmt: skip


@by_schema
def npu_dynamic_mx_quant_with_dual_axis(args: Arguments) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    how = {"mode": args.round_mode, "algorithm": args.scale_alg, "dst_type_max": args.dst_type_max or 0.0}
    x, kind = as_float32(args.input), kind_of(args.dst_type)
    return *mx(x, -1, kind, **how), *mx(x, -2, kind, **how)


@by_schema
def npu_anti_mx_quant(args: Arguments) -> Tensor:
    numbers = loaded(args.x, kind_of(args.src_type) if args.x.dtype is torch.uint8 else "e4m3")
    at = (-1 if args.axis is None else args.axis) % numbers.ndim
    result = np.empty(numbers.shape)
    for place in np.ndindex(*numbers.shape):
        pair, which = divmod(place[at] // 32, 2)
        exponent = int(args.mxscale[(*place[:at], pair, *place[at + 1 :], which)]) - 127
        result[place] = numbers[place] * 2.0**exponent
    return torch.from_numpy(result).to(dtype_of(args.dst_type, torch.bfloat16))


@by_schema
def npu_dynamic_block_mx_quant(args: Arguments) -> tuple[Tensor, Tensor, Tensor]:
    x, kind = as_float32(args.input), kind_of(args.dst_type)
    rows, columns = x.shape[-2:]
    numbers = np.zeros(x.shape)
    by_row = np.zeros((*x.shape[:-1], 2 * -(-columns // 64)), dtype=np.uint8)
    by_column = np.zeros((*x.shape[:-2], 2 * -(-rows // 64), columns), dtype=np.uint8)
    for outer, top, left in _tiles(x.shape):
        part = (*outer, slice(top, top + 32), slice(left, left + 32))
        exponent = exponent_of(float(np.abs(x[part]).max()), kind, args.scale_alg, args.dst_type_max)
        numbers[part] = quantize(x[part].astype(np.float64) / 2.0**exponent, kind, args.round_mode)
        by_row[(*outer, part[-2], left // 32)] = exponent + 127
        by_column[(*outer, top // 32, part[-1])] = exponent + 127
    return stored(numbers, kind), in_pairs(by_row, x.ndim - 1), in_pairs(by_column, x.ndim - 2)


def _tiles(shape: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], int, int]]:
    for outer in np.ndindex(*shape[:-2]):
        for top in range(0, shape[-2], 32):
            for left in range(0, shape[-1], 32):
                yield outer, top, left


@by_schema
def npu_dynamic_dual_level_mx_quant(args: Arguments) -> tuple[Tensor, Tensor, Tensor]:
    x = as_float32(args.input if args.smooth_scale is None else args.input * args.smooth_scale)
    count = -(-x.shape[-1] // 512)
    scales = np.stack([np.abs(x[..., 512 * k : 512 * (k + 1)]).max(-1) for k in range(count)], -1) / np.float32(6)
    levelled = x / np.maximum(np.repeat(scales, 512, -1)[..., : x.shape[-1]], 1e-30)
    narrow = torch.from_numpy(levelled).to(args.input.dtype)
    y, exponents = mx(as_float32(narrow), -1, "e2m1", mode=args.round_mode, algorithm=0)
    return y, torch.from_numpy(scales), exponents


@by_schema
def npu_dual_level_quant_matmul(args: Arguments) -> Tensor:
    left, right = loaded(args.x1, "e2m1"), loaded(args.x2, "e2m1")
    first, second = args.x1_level1_scale.flatten(1).numpy(), args.x2_level1_scale.flatten(1).numpy()
    total = np.zeros((len(left), len(right)))
    for k in range(0, left.shape[1], 32):
        powers = np.add.outer(first[:, k // 32].astype(int), second[:, k // 32].astype(int)) - 254
        outer = np.outer(
            args.x1_level0_scale[:, k // 512].double().numpy(), args.x2_level0_scale[k // 512].double().numpy()
        )
        total += left[:, k : k + 32] @ right[:, k : k + 32].T * 2.0**powers * outer
    total = total if args.bias is None else total + args.bias.double().numpy()
    return torch.from_numpy(total).to(dtype_of(args.output_dtype, torch.bfloat16))


@by_schema
def npu_grouped_dynamic_mx_quant(args: Arguments) -> tuple[Tensor, Tensor]:
    return mx_groups(
        as_float32(args.x),
        args.group_index.tolist(),
        kind_of(args.dst_type),
        block=args.blocksize,
        mode=args.round_mode,
        algorithm=args.scale_alg or 0,
        dst_type_max=args.dst_type_max or 0.0,
    )
