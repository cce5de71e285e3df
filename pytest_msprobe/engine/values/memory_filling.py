"""Filling of memory where no element of a tensor lies: numbers that show where they are read, or written over."""

from __future__ import annotations

import math

import torch

# Of larger tensors a part says well enough how large its elements are.
_LOOKED_AT = 4096


def filling(values: torch.Tensor, size: int) -> torch.Tensor:
    """Return so many finite elements that differ from the values, of either sign, in their dtype.

    Of whole numbers they are among the values: those may be indices, and a device that reads others may read anywhere.
    """
    dtype = values.dtype
    pattern = _floats(values) if dtype.is_floating_point or dtype.is_complex else _whole_numbers(values)
    # Torch fills few of the dtypes of 8 bits.
    repeated = pattern.to(dtype).repeat(size // len(pattern) + 1)
    return repeated[:size].clone()


def _floats(values: torch.Tensor) -> torch.Tensor:
    dtype = values.dtype
    some = values.reshape(-1)[:_LOOKED_AT]
    some = (torch.view_as_real(some) if dtype.is_complex else some).double().abs()
    greatest = float(some[some.isfinite()].max()) if bool(some.isfinite().any()) else 1.0
    most = float(torch.finfo(dtype).max)
    # No three steps that a tensor may take over its gaps see one sign alone.
    size = min(2 * greatest + 1.3, most / 4) if math.isfinite(greatest) else 1.3
    return torch.tensor([size, -size, -1.5 * size], dtype=torch.float64)


def _whole_numbers(values: torch.Tensor) -> torch.Tensor:
    some = values.reshape(-1)[:_LOOKED_AT]
    if values.dtype is torch.bool:
        return torch.tensor([True, False, False])
    low, high = (int(some.min()), int(some.max())) if some.numel() else (0, 0)
    return torch.tensor([high, low, low + (high - low) // 2] if low != high else [high // 2])
