"""Floating-point dtypes by their plain names, from coarse to fine."""

from __future__ import annotations

from typing import Final

from msprobe_hooks.dump.names import plain_dtype

FLOAT_DTYPES: Final = ("float8", "bfloat16", "float16", "float32", "float64")
_REAL = {"complex32": "float16", "complex64": "float32", "complex128": "float64", "float": "float32", "half": "float16"}


def float_dtype(dtype: str) -> str | None:
    """Return the floating-point dtype by its plain name (that of the parts of a complex one), None for others."""
    name = plain_dtype(dtype)
    name = _REAL.get(name, name)
    if name.startswith("float8"):
        return "float8"
    return name if name in FLOAT_DTYPES else None


def coarser(a: str, b: str) -> str:
    """Return the one of two floating-point dtypes, by their plain names, that has fewer significant bits."""
    return min(a, b, key=FLOAT_DTYPES.index)


def finer(a: str, b: str) -> str:
    """Return the one of two floating-point dtypes, by their plain names, that has more significant bits."""
    return max(a, b, key=FLOAT_DTYPES.index)
