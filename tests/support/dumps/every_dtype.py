"""Tensors of every dtype that files of tensors hold."""

from __future__ import annotations

import torch

from msprobe_hooks.torch import tensor_files

DTYPES = sorted(tensor_files._PLAIN_DTYPES, key=str)


def bits(tensor: torch.Tensor) -> bytes:
    """Return the bytes of a tensor's elements."""
    plain = tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
    return plain.view(torch.uint8).numpy().tobytes()


def some(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    """Return numbers of any dtype: bytes that are 0 or 1, which a bool may hold as well."""
    return torch.randint(0, 2, (*shape, dtype.itemsize), dtype=torch.uint8).view(dtype).reshape(shape)
