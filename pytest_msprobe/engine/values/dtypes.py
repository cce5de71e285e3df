"""Recorded dtype names, and the precision in which the golden result is computed."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

import torch

from msprobe_hooks.dump.names import plain_dtype
from pytest_msprobe.results.outcomes import Skip, SkipReason

_LOW_PRECISION_BITS = 16


@cache
def dtype_named(name: str) -> torch.dtype:
    """Return torch's dtype for a recorded name such as ``torch.float16`` or, as MindSpore spells it, ``Float16``.

    Raises Skip where this torch has none of that name.
    """
    dtype = getattr(torch, torch_dtype_name(name).removeprefix("torch."), None)
    if not isinstance(dtype, torch.dtype):
        raise Skip(SkipReason.UNKNOWN_DTYPE, name)
    return dtype


def torch_dtype_name(name: str) -> str:
    """Return torch's name of a dtype: ``torch.bfloat16`` for BFloat16. Unknown names come back as they are."""
    plain = plain_dtype(name)
    # torch has a dtype of this name that holds no values.
    return name if name.startswith("torch.") or plain == "int4" else f"torch.{plain}"


def is_low_precision(dtype: torch.dtype) -> bool:
    """Return whether a dtype is a float of at most 16 bits."""
    return dtype.is_floating_point and dtype.itemsize * 8 <= _LOW_PRECISION_BITS


def golden_float(dtypes: Iterable[torch.dtype]) -> torch.dtype:
    """Return the float dtype in which a call with these dtypes is computed as golden.

    float32 where every float among them has at most 16 bits, float64 otherwise: operands are raised together, so
    that a mixture is not rounded on its way.
    """
    floats = [dtype for dtype in dtypes if dtype.is_floating_point or dtype.is_complex]
    if floats and all(is_low_precision(dtype) or dtype is torch.complex32 for dtype in floats):
        return torch.float32
    return torch.float64


def raised(dtype: torch.dtype, golden: torch.dtype) -> torch.dtype:
    """Return what a dtype becomes in a golden run whose floats are ``golden``; integers and bools stay."""
    if dtype.is_complex:
        return torch.complex64 if golden is torch.float32 else torch.complex128
    return golden if dtype.is_floating_point else dtype
