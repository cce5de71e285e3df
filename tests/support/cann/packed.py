"""Packed numbers of the NPU, written and read independently of the golden definitions: 4 bits, scales with offsets."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import torch
from torch import Tensor

Array = np.ndarray[Any, np.dtype[Any]]


def floats(x: Tensor) -> Array:
    """Return the values of a tensor of any dtype in float64."""
    return x.detach().to(torch.float64).numpy()


def pack_int4(values: Tensor) -> Tensor:
    """Return int32 that hold eight whole numbers of 4 bits each, of the last dimension, the first in the lowest."""
    grouped = values.to(torch.int64).numpy().reshape(*values.shape[:-1], -1, 8) & 0xF
    words = sum(grouped[..., place] << (4 * place) for place in range(8))
    return torch.from_numpy(np.asarray(words, dtype=np.int64).astype(np.uint32).view(np.int32).copy())


def unpack_int4(words: Tensor, inner: int | None = None) -> Array:
    """Return the numbers of 4 bits; where ``inner`` is not the rows' count, they were packed along the rows."""
    is_by_row = inner is not None and words.shape[-2] != inner
    stored = words.mT if is_by_row else words
    unsigned = stored.contiguous().numpy().view(np.uint32)
    digits = np.stack([(unsigned >> np.uint32(4 * place)) & np.uint32(15) for place in range(8)], -1).astype(np.int64)
    signed = np.where(digits > 7, digits - 16, digits).reshape(*unsigned.shape[:-1], -1)
    return np.swapaxes(signed, -1, -2) if is_by_row else signed


def whole(x: Tensor, inner: int | None = None) -> Array:
    """Return numbers of 8 bits, or of 4 in int32, in float64."""
    return unpack_int4(x, inner).astype(np.float64) if x.dtype is torch.int32 else floats(x)


def cut(scale: float) -> float:
    """Return a scale without the lowest 13 bits of its float32."""
    bits = int(struct.unpack("<I", struct.pack("<f", scale))[0]) & 0xFFFFE000
    return float(struct.unpack("<f", struct.pack("<I", bits))[0])


def pack_scale(scale: Tensor, offset: Tensor | None = None) -> Tensor:
    """Return scales of float32 as ``npu_trans_quant_param`` packs them."""
    offsets = torch.zeros_like(scale) if offset is None else offset.expand_as(scale)
    words = []
    for one, shift in zip(scale.flatten().tolist(), offsets.flatten().tolist(), strict=True):
        bits = int(struct.unpack("<I", struct.pack("<f", cut(one)))[0])
        words.append(bits | (max(-256, min(255, round(shift))) & 0x1FF) << 37 | 1 << 46)
    return torch.tensor(words, dtype=torch.int64).reshape(scale.shape)


def read_scale(scale: Tensor) -> tuple[Array, Array]:
    """Return scales and offsets; those of floats have none."""
    if scale.is_floating_point():
        return floats(scale), np.zeros(scale.shape)
    words = scale.to(torch.int64).flatten().tolist()
    factors = [struct.unpack("<f", struct.pack("<I", word & 0xFFFFFFFF))[0] for word in words]
    shifts = [((word >> 37) & 0x1FF) - (512 if word >> 45 & 1 else 0) for word in words]
    return np.asarray(factors).reshape(scale.shape), np.asarray(shifts, dtype=float).reshape(scale.shape)


def exponents(scale: Tensor) -> Array:
    """Return the powers of two that bytes of E8M0 stand for, those of floats as they are."""
    if scale.is_floating_point():
        return floats(scale)
    return np.asarray(np.ldexp(1.0, scale.to(torch.int64).numpy() % 256 - 127))


def to_int8(values: Array) -> Tensor:
    """Return values rounded half to even and saturated."""
    return torch.from_numpy(np.clip(np.rint(values), -128, 127).astype(np.int8))


def in_dtype(values: Array, dtype: torch.dtype) -> Tensor:
    """Return values rounded to a float's dtype."""
    return torch.from_numpy(np.ascontiguousarray(values)).to(dtype)


def by_blocks(x: Array, w: Array, x_scale: Array, w_scale: Array, size: int, *, group_m: int, group_n: int) -> Array:
    """Return the sum over blocks j of k of (x_j @ w_j) * x_scale[m / group_m, j] * w_scale[j, n / group_n]."""
    rows, columns = x.shape[0], w.shape[1]
    total = np.zeros((rows, columns))
    for j in range(-(-x.shape[1] // size)):
        part = x[:, j * size : (j + 1) * size] @ w[j * size : (j + 1) * size]
        for m in range(rows):
            for n in range(columns):
                total[m, n] += part[m, n] * x_scale[m // group_m, j] * w_scale[j, n // group_n]
    return total


def by_halves(x: Array, w: Array, scale: Array, added: Array) -> Array:
    """Return the product of int8 and 4 bits, x as two halves of 4 bits: 16 * (h @ w) + l @ w with l in [-8, 7]."""
    whole_x = x.astype(np.int64)
    high, low = whole_x >> 4, (whole_x & 15) - 8
    factors = np.repeat(scale.reshape(-1, w.shape[1]), w.shape[0] // scale.reshape(-1, w.shape[1]).shape[0], 0)
    return np.asarray(16 * (high @ (w * factors)) + low @ (w * factors) + added)


def activated(name: str, x: Array) -> Array:
    """Return an activation, element by element."""
    tensor = torch.from_numpy(np.ascontiguousarray(x))
    exact = 0.5 * tensor * (1 + torch.erf(tensor / 2**0.5))
    tanh = 0.5 * tensor * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (tensor + 0.044715 * tensor**3)))
    with np.errstate(over="ignore"):
        return {
            "none": x,
            "relu": np.maximum(x, 0),
            "gelu_erf": exact.numpy(),
            "gelu_tanh": tanh.numpy(),
            "fastgelu": x / (1 + np.exp(-1.702 * x)),
            "silu": x / (1 + np.exp(-x)),
        }[name]
