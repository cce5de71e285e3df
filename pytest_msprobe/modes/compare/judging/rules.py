"""The rules of the policies: what a row's numbers say of it, and what a call's outputs say of the call."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

from msgspec.structs import replace

from msprobe_hooks.dump.names import FLOAT_DTYPES, coarser, finer, float_dtype, plain_dtype
from pytest_msprobe.modes.compare.rows import FINITE_ERROR, SCALED_ERROR, STATISTICS, DataMode, Outcome, Row

if TYPE_CHECKING:
    from msprobe_hooks.dump.values import Value


class RowRule(Protocol):
    """Turns the measured rows of one call into judged ones."""

    @property
    def scaled_limits(self) -> Mapping[str, float]:
        """The scaled error above which a value fails, by floating-point dtype; empty where something else decides."""

    def judge(self, api: str, mode: DataMode, rows: list[Row]) -> list[Row]:
        """Return the rows with outcome and messages. ``api`` is the last word of the API's name (``conv2d``)."""


_EQUIVALENT = frozenset({"bfloat16", "float16", "float32"})
# An order alone, as in `msprobe_standards.verdict`.
_SEVERITY: dict[Outcome, int] = {"skip": 0, "pass": 1, "warn": 2, "fail": 3}


def worse(a: Outcome, b: Outcome) -> Outcome:
    """Return the more severe of two outcomes."""
    return a if _SEVERITY[a] >= _SEVERITY[b] else b


def outcome_of(rows: Iterable[Row]) -> Outcome:
    """Return the worst outcome of the rows, skip where none was measured."""
    outcome: Outcome = "skip"
    for row in rows:
        outcome = worse(outcome, row.outcome)
    return outcome


def _with(row: Row, outcome: Outcome, message: str) -> Row:
    return replace(row, outcome=worse(row.outcome, outcome), messages=(*row.messages, message))


class Scaled:
    """The default: every value may differ by what its dtype makes likely, as a fraction of its own scale."""

    def __init__(self, table: Mapping[str, Any]) -> None:
        self._limits = {name: (float(warn), float(fail)) for name, (warn, fail) in table["limits"].items()}
        missing = set(FLOAT_DTYPES) - set(self._limits)
        if missing:
            raise ValueError(f"no limits for {', '.join(sorted(missing))}")
        self.scaled_limits = {dtype: fail for dtype, (_, fail) in self._limits.items()}

    def usual(self, dtype: str) -> float:
        """Return the scaled error up to which nothing is said of a value of a floating-point dtype."""
        return self._limits[dtype][0]

    def judge(self, api: str, mode: DataMode, rows: list[Row]) -> list[Row]:
        """Judge each row by itself."""
        return [row if _is_same(row) else self._judged(mode, row) for row in rows]

    def _judged(self, mode: DataMode, row: Row) -> Row:
        target, golden = row.target, row.golden
        if target is None or golden is None:
            return _with(row, "fail", f"only the {'target' if target else 'golden run'} has this value")
        row = _structure(row, target, golden)
        error = row.metrics.get(SCALED_ERROR)
        if error is None or row.outcome == "fail":
            return row
        if mode == "md5":
            return _with(row, "fail", "the checksums differ") if error else row
        return self._by_error(row, target, golden, error)

    def _by_error(self, row: Row, target: Value, golden: Value, error: float) -> Row:
        if error and _are_equivalent_dtypes(target, golden):
            return _with(row, "pass", _difference(row, error))
        target_precision, golden_precision = _precision(target), _precision(golden)
        if target_precision is None or golden_precision is None:
            return _with(row, "fail", _difference(row, error)) if error else row
        warn, fail = self._limits[coarser(target_precision, golden_precision)]
        # Computed in a coarser dtype, a value may be right for it and still be where two runs part.
        usual = min(warn, self._limits[finer(target_precision, golden_precision)][0])
        if error > fail:
            limits = f" exceeds limit {fail:.2e}, warning limit {usual:.2e}"
            return _with(row, "fail", _difference(row, error, limits))
        if error > usual:
            limits = f" exceeds warning limit {usual:.2e}, limit {fail:.2e}"
            return _with(row, "warn", _difference(row, error, limits))
        return row


class Msprobe12:
    """msprobe 1.2: cosine and absolute error of real tensors; statistics that differ by half of their magnitude."""

    scaled_limits: Mapping[str, float] = MappingProxyType({})

    def __init__(self, table: Mapping[str, Any]) -> None:
        limits = table["limits"]
        self._cosine, self._worst_cosine = map(float, limits["cosine_sim"])
        self._abs, self._worst_abs = map(float, limits["max_abs_err"])
        self._statistics = float(limits["statistics"])

    def judge(self, api: str, mode: DataMode, rows: list[Row]) -> list[Row]:
        """Judge each row by itself."""
        return [row if _is_same(row) else self._judged(mode, row) for row in rows]

    def _judged(self, mode: DataMode, row: Row) -> Row:
        if row.target is None or row.golden is None:
            return _with(row, "skip", "the other side has no such value")
        if row.unmeasured == "shape":
            return _with(row, "skip", "the shapes differ")
        if mode == "md5":
            return _with(row, "fail", "the checksums differ") if row.metrics.get(SCALED_ERROR) else row
        return self._by_tensor(row) if mode == "tensor" else self._by_statistics(row, row.target, row.golden)

    def _by_tensor(self, row: Row) -> Row:
        max_abs_err, cosine = row.metrics.get("max_abs_err"), row.metrics.get("cosine_sim")
        if max_abs_err is None:
            return row
        if max_abs_err > self._worst_abs or max_abs_err == math.inf:
            return _with(row, "fail", f"absolute error {max_abs_err:.3g} exceeds limit {self._worst_abs:g}")
        if cosine is not None and cosine < self._worst_cosine:
            return _with(row, "fail", f"cosine {cosine:.6g} is below limit {self._worst_cosine:g}")
        if cosine is not None and cosine < self._cosine and max_abs_err > self._abs:
            return _with(
                row,
                "fail",
                f"cosine {cosine:.6g} is below limit {self._cosine:g} and absolute error {max_abs_err:.3g} exceeds "
                f"limit {self._abs:g}",
            )
        return row

    def _by_statistics(self, row: Row, target: Value, golden: Value) -> Row:
        for name, a, b in zip(STATISTICS, target.statistics or (), golden.statistics or (), strict=False):
            difference = row.metrics.get(f"{name}_diff")
            if difference is None or a is None or b is None:
                continue
            if abs(difference) == math.inf or abs(difference) / (max(abs(a), abs(b)) + 1e-10) > self._statistics:
                return _with(row, "fail", f"{name} differs by more than {self._statistics:.0%}; check its tensors")
        return row


class Msprobe26:
    """msprobe 26: what a call adds to the error of its inputs."""

    scaled_limits: Mapping[str, float] = MappingProxyType({})

    def __init__(self, table: Mapping[str, Any]) -> None:
        limits = table["limits"]
        self._ratio_in, self._ratio_out = map(float, limits["rel_err_thousandth"])
        self._cosine_in, self._cosine_drop = map(float, limits["cosine_sim"])
        self._norm_in, self._norm_out = map(float, limits["norm_rel_diff"])
        self._growth = float(limits["norm_growth"])
        self._exempt = frozenset(table.get("exempt_apis", ()))
        self._no_growth = frozenset(table.get("exempt_from_growth", ()))

    def judge(self, api: str, mode: DataMode, rows: list[Row]) -> list[Row]:
        """Judge each row by itself, and the outputs by what they add to the inputs' errors."""
        if api in self._exempt:
            return rows
        judged = [row if _is_same(row) else self._alone(mode, row) for row in rows]
        if mode == "md5" or api in self._no_growth:
            return judged
        added = self._by_tensor if mode == "tensor" else self._by_statistics
        inputs = [row for row in judged if row.group in ("input", "parameters")]
        return [added(row, inputs) if row.group == "output" else row for row in judged]

    def _alone(self, mode: DataMode, row: Row) -> Row:
        target, golden = row.target, row.golden
        if target is None or golden is None:
            return _with(row, "warn" if mode == "md5" else "skip", "the other side has no such value")
        row = _structure(row, target, golden, strict=True)
        if target.is_tensor and not _finite(target) and _finite(golden):
            row = _with(row, "fail", "max or min is NaN or inf in the target only")
        if not target.is_tensor and row.metrics.get(SCALED_ERROR):
            row = _with(row, "fail", f"{target.text} in place of {golden.text}")
        if mode == "md5" and target.is_tensor and row.metrics.get(SCALED_ERROR):
            row = _with(row, "fail", "the checksums differ")
        return row

    def _by_tensor(self, row: Row, inputs: list[Row]) -> Row:
        ratio, cosine = row.metrics.get("rel_err_thousandth"), row.metrics.get("cosine_sim")
        ratios, cosines = _measured(inputs, "rel_err_thousandth"), _measured(inputs, "cosine_sim")
        if ratio is not None and ratios and min(ratios) > self._ratio_in and ratio < self._ratio_out:
            row = _with(row, "fail", f"share of elements within 0.001 falls from {min(ratios):.3g} to {ratio:.3g}")
        if cosine is not None and cosines and min(cosines) > self._cosine_in:
            drop = min(cosines) - cosine
            if drop > self._cosine_drop:
                row = _with(row, "warn", f"cosine falls from {min(cosines):.6g} to {cosine:.6g}")
        return row

    def _by_statistics(self, row: Row, inputs: list[Row]) -> Row:
        norm, norms = row.metrics.get("norm_rel_diff"), _measured(inputs, "norm_rel_diff")
        if norm is None or not norms:
            return row
        before = max(norms)
        if before < self._norm_in and norm > self._norm_out:
            return _with(row, "fail", f"relative error of the norm grows from {before:.3g} to {norm:.3g}")
        if norm > (self._growth * before if before else self._norm_in):
            return _with(row, "warn", f"relative error of the norm grows from {before:.3g} to {norm:.3g}")
        return row


def _is_same(row: Row) -> bool:
    """Return whether both sides are equal in all that was recorded; most rows are."""
    target, golden = row.target, row.golden
    return (
        target is not None
        and golden is not None
        and not row.unmeasured
        and row.metrics.get(SCALED_ERROR) == 0
        and target.dtype == golden.dtype
        and target.requires_grad == golden.requires_grad
    )


def _structure(row: Row, target: Value, golden: Value, strict: bool = False) -> Row:
    """Judge shape, dtype, kind and requires_grad. The floats of 16 and 32 bits are equivalent, unless strict."""
    if row.unmeasured == "kind":
        return _with(row, "fail", f"{_kind(target)} in place of {_kind(golden)}")
    if row.unmeasured == "shape":
        return _with(row, "fail", f"shape {list(target.shape)} in place of {list(golden.shape)}")
    if target.dtype != golden.dtype and plain_dtype(target.dtype) != plain_dtype(golden.dtype):
        tolerated = not strict and float_dtype(target.dtype) and float_dtype(golden.dtype)
        row = _with(row, "pass" if tolerated else "fail", f"{_kind(target)} in place of {_kind(golden)}")
    if target.requires_grad != golden.requires_grad and None not in (target.requires_grad, golden.requires_grad):
        row = _with(
            row, "fail" if strict else "warn", f"requires_grad is {target.requires_grad}, golden {golden.requires_grad}"
        )
    if row.unmeasured in ("no file", "unreadable"):
        # The message is there already: it names the file.
        row = replace(row, outcome="fail")
    return row


def _are_equivalent_dtypes(target: Value, golden: Value) -> bool:
    """Return whether two arguments are dtypes of 16 or 32 bits, of which runs of different precision choose."""
    return target.type == golden.type and all(
        value.type.endswith(".dtype") and float_dtype(value.text) in _EQUIVALENT for value in (target, golden)
    )


def _kind(value: Value) -> str:
    return (value.dtype or value.type or "None").removeprefix("torch.")


def _precision(value: Value) -> str | None:
    if value.is_tensor:
        return float_dtype(value.dtype)
    # A Python float is rounded to float32 by most of what it takes part in.
    return "float32" if value.type == "float" else None


def _difference(row: Row, error: float, limits: str = "") -> str:
    target, golden = row.target, row.golden
    if target is not None and golden is not None and not target.is_tensor:
        scaled = f"; scaled error {error:.2e}{limits}" if limits and error != math.inf else ""
        return f"{target.text} in place of {golden.text}{scaled}"
    if error == math.inf:
        count = row.metrics.get("nonfinite_mismatch")
        if not count:
            return "NaN or inf, or a value in place of zero"
        words = f"{count:.0f} {'element is' if count == 1 else 'elements are'} NaN or inf on one side only"
        others = row.metrics.get(FINITE_ERROR)
        return words if others is None else f"{words}; the others differ by up to {others:.3g}"
    where = f", worst at {list(row.worst)}" if row.worst else ""
    return f"scaled error {error:.2e}{limits or '; equal values expected'}{where}"


def _finite(value: Value) -> bool:
    return all(x is None or math.isfinite(x) for x in (value.statistics or ())[:2])


def _measured(rows: list[Row], name: str) -> list[float]:
    return [row.metrics[name] for row in rows if name in row.metrics]


RULES: Mapping[str, Callable[[Mapping[str, Any]], RowRule]] = {
    "scaled": Scaled,
    "msprobe-1.2": Msprobe12,
    "msprobe-26": Msprobe26,
}
