"""Rows of transformed values: refused where an entry does not fit, judged by dtype; float dtypes by precision."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from msprobe_hooks.dump.tensor_files.dtypes import plain_dtype

if TYPE_CHECKING:
    from msprobe_hooks.dump.values import Value
    from pytest_msprobe.extensions.transformations.transformations import Entry, Transformed
    from pytest_msprobe.modes.compare.rows import Row

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


def refused(row: Row, entry: Entry, problem: str) -> Row:
    """Return a row that fails because an entry does not fit it."""
    return replace(row, outcome="fail", unmeasured="transform", messages=(f"{entry.place}: {problem}",))


def refused_shapes(row: Row, found: tuple[Transformed | None, ...], target: object, golden: object) -> Row:
    """Return a row that fails because the two sides have other shapes after their steps."""
    entry = next(each.entries[-1] for each in found if each is not None)
    return refused(row, entry, f"the target is {target} and golden is {golden} after it; correct the steps")


def judged_as(row: Row, found: tuple[Transformed | None, ...]) -> Row:
    """Return a row with both sides' floats of the dtype by whose limits an entry has them judged, where one does."""
    precision = next((each.precision for each in found if each is not None and each.precision), None)
    if precision is None:
        return row
    return replace(row, target=_as_dtype(row.target, precision), golden=_as_dtype(row.golden, precision))


def _as_dtype(value: Value | None, dtype: str) -> Value | None:
    return replace(value, dtype=f"torch.{dtype}") if value is not None and float_dtype(value.dtype) else value
