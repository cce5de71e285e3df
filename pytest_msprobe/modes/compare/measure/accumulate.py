"""Metrics over blocks of numbers and over files that numpy reads, so that no torch is loaded.

Sums are those of float64; greatest errors and counts are `chunk`'s.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from msgspec.structs import replace

from msprobe_hooks.recording.array_statistics import measure
from msprobe_standards.chunking import dot
from pytest_msprobe.modes.compare.measure.chunk import SLACK, Part
from pytest_msprobe.modes.compare.measure.recorded_arrays import BFLOAT16, as_floats, load_array
from pytest_msprobe.modes.compare.rows import FINITE_ERROR, SCALED_ERROR, Row

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from msprobe_hooks.dump.npy import Array
    from msprobe_hooks.dump.reader import Dump
    from msprobe_hooks.dump.values import Value
    from msprobe_hooks.recording.tensor_entry import Statistics
    from pytest_msprobe.modes.compare.measure.chunk import Doubles, Floats, Places

    Parts: TypeAlias = Callable[[], Iterable[tuple[int, Floats, Floats]]]

# OpenBLAS, numpy's BLAS, computes inner products of more than 10 000 elements on several threads: sums would depend on
# their number.
_PIECE = 8192

LENGTH = 32768
"""Elements in a part: what is computed of it stays in a core's cache; of shorter ones the calls take as long."""

EXACT_INTEGERS = 2**52
"""Up to which magnitude float64 holds integers and the differences of two."""

# msprobe's: relative errors whose shares of elements its tables show.
_LIMITS = (0.001, 0.005)
# The squares of such magnitudes stay within float64, which ends at 1e-308 and 1e308.
_SQUARED_SAFELY = (1e-150, 1e150)


class Products:
    """Inner products over parts of a pair, g being the golden elements and d = t - g the errors.

    Of elements that are multiplied by ``factor``, a power of two, where their squares leave float64.
    """

    def __init__(self, rows: Doubles, factor: float = 1.0) -> None:
        """``rows`` are two, as long as the longest part, to work in."""
        self.factor = factor
        self._rows = rows
        # Of pieces: to add up those of all parts at last costs a call in place of one for each part.
        self._sums: list[Doubles] = []

    def add(self, golden: Floats, errors: Floats) -> None:
        """Add a part."""
        self._add(self._scaled(golden, 0), self._scaled(errors, 1))

    def add_apart(self, golden: Floats, target: Floats) -> None:
        """Add a part in float32 whose errors it does not hold."""
        g, d = self._scaled(golden, 0), self._scaled(target, 1)
        self._add(g, np.subtract(d, g, out=d))

    def add_equal(self, golden: Floats) -> None:
        """Add a part without errors."""
        g = self._scaled(golden, 0)
        self._sums.append(np.array([[dot(g, g)], [0.0], [0.0]]))

    def total(self) -> tuple[float, float, float]:
        """Return the sums of g², g·d and d²."""
        gg, gd, dd = np.concatenate(self._sums, axis=1).sum(axis=1).tolist() if self._sums else (0.0, 0.0, 0.0)
        return gg, gd, dd

    def _scaled(self, x: Floats, row: int) -> Doubles:
        if x.dtype != np.float64:
            np.copyto(self._rows[row, : x.size], x)
            return self._rows[row, : x.size]
        return x if self.factor == 1.0 else x * self.factor  # type: ignore[return-value]

    def _add(self, g: Doubles, d: Doubles) -> None:
        if g.size % _PIECE:
            self._sums.append(np.array([[dot(g, g)], [dot(g, d)], [dot(d, d)]]))
            return
        sums = np.empty((3, g.size // _PIECE, 1, 1))
        g_rows, g_columns = g.reshape(-1, 1, _PIECE), g.reshape(-1, _PIECE, 1)
        d_rows, d_columns = d.reshape(-1, 1, _PIECE), d.reshape(-1, _PIECE, 1)
        np.matmul(g_rows, g_columns, out=sums[0])
        np.matmul(g_rows, d_columns, out=sums[1])
        np.matmul(d_rows, d_columns, out=sums[2])
        self._sums.append(sums.reshape(3, -1))


@dataclass(frozen=True, slots=True)
class Measured:
    """Measurements of a pair: the metrics of `rows.TENSOR_METRICS`, the index of the greatest error, the scales.

    ``max_golden`` is the greatest magnitude and ``golden_norm`` the norm of the golden elements finite on both sides.
    """

    metrics: dict[str, float]
    worst: tuple[int, ...] | None
    max_golden: float
    golden_norm: float

    @property
    def scaled_metrics(self) -> dict[str, float]:
        """The metrics, and the greater of the greatest and the Euclidean error as a fraction of the golden scale."""
        greatest = _scaled(self.metrics["max_abs_err"], self.max_golden)
        return {**self.metrics, SCALED_ERROR: max(greatest, _scaled(self.metrics["euclidean"], self.golden_norm))}


def _scaled(error: float, scale: float) -> float:
    if error == 0:
        return 0.0
    return error / scale if scale and math.isfinite(error) else math.inf


def equal_metrics(numel: int, *, has_ulps: bool) -> dict[str, float]:
    """Return the scaled metrics of two tensors of the same elements, of which there is nothing to be measured."""
    zeros = dict.fromkeys(("euclidean", "max_abs_err", "rel_err_max", "nonfinite_mismatch", SCALED_ERROR), 0.0)
    metrics = {**zeros, "rel_err_thousandth": 1.0, "rel_err_five_thousandths": 1.0}
    return {**metrics, **({"max_ulp_error": 0.0} if has_ulps else {}), **({"cosine_sim": 1.0} if numel > 1 else {})}


def array_parts(target: NDArray[Any], golden: NDArray[Any]) -> Iterator[tuple[int, NDArray[Any], NDArray[Any]]]:
    """Yield the parts of two arrays of one shape: where each begins, and the elements of it."""
    mine, other = target.reshape(-1), golden.reshape(-1)
    for start in range(0, mine.size, LENGTH):
        yield start, mine[start : start + LENGTH], other[start : start + LENGTH]


class Precision(NamedTuple):
    """Parameters of a unit in the last place of a floating-point format."""

    mantissa_bits: int
    min_normal: float


class _Memory(threading.local):
    """Memory that the walks of a thread use in turn: new memory costs as much time as a pass over it."""

    _rows = np.empty((6, 0))

    def rows(self, length: int) -> Doubles:
        """Return six rows of so many numbers; what they hold is anybody's."""
        if self._rows.shape[1] < length:
            self._rows = np.empty((6, length))
        return self._rows[:, :length]


_memory = _Memory()


class Walk:
    """Sums, counts and maxima over one pair of parts; complex numbers are two elements each, of ``width`` 2."""

    def __init__(self, parts: Parts, precision: Precision | None, length: int, width: int = 1) -> None:
        """``length`` is that of the longest part, ``precision`` that of the coarser side where both are floats."""
        self.max_abs_err = self.rel_err_max = self.max_ulp_error = self.max_golden = 0.0
        self.worst = self.first_mismatch = -1
        self._width = width
        self._precision = precision
        rows = _memory.rows(length)
        self._rows = rows[2:]
        self.products = Products(rows[:2])
        with np.errstate(all="ignore"):
            self._over(parts)
            if self.max_golden and not (
                all(map(math.isfinite, self.products.total()))
                and _SQUARED_SAFELY[0] < self.max_golden < _SQUARED_SAFELY[1]
            ):
                self.products = Products(rows[:2], math.ldexp(1.0, min(-math.frexp(self.max_golden)[1], 1000)))
                self._over(parts)
        self.gg, self.gd, self.dd = self.products.total()

    def _over(self, parts: Parts) -> None:
        self.count = self.mismatched = 0
        self.within = [0, 0]
        for offset, target, golden in parts():
            self.count += target.size
            self._add(offset, target, golden)

    def _add(self, offset: int, t: Floats, g: Floats) -> None:
        scratch, places = self._rows.view(t.dtype)[:, : t.size], None
        d, a, m, ratio = scratch
        np.subtract(t, g, out=d)
        np.abs(d, out=a)
        np.abs(g, out=m)
        greatest, largest = np.maximum.reduce(scratch[1:3], axis=1).tolist()
        if not math.isfinite(greatest):
            finite = np.isfinite(t) & np.isfinite(g)
            if not finite.all():
                self._add_nonfinite(offset, t, g, finite)
                places = np.flatnonzero(finite)
                if not places.size:
                    return
                t, g, d = t[places], g[places], d[places]
                a, m, ratio = np.abs(d), np.abs(g), ratio[: places.size]
                greatest, largest = float(a.max()), float(m.max())
            if not math.isfinite(greatest) and t.dtype == np.float32:
                t, g, m, ratio = t.astype(np.float64), g.astype(np.float64), m.astype(np.float64), np.empty(t.size)
                d = t - g
                a = np.abs(d)
                greatest = float(a.max())
        self.max_golden = max(self.max_golden, largest)
        if greatest == 0:
            self.within = [share + g.size for share in self.within]
            self.products.add_equal(g)
            return
        np.divide(a, m, out=ratio)
        # Equal zeros, whose quotient is NaN, have no error.
        reach = float(np.fmax.reduce(ratio))
        self._add_errors(offset, Part(t, g, a, m, ratio, greatest, reach), d, places)

    def _add_errors(self, offset: int, part: Part, d: Floats, places: Places | None) -> None:
        if part.slack:
            self.products.add_apart(part.golden, part.target)
        else:
            self.products.add(part.golden, d)
        self._add_greatest(part, offset, places)
        self._add_relative(part)
        if self._precision is not None:
            self._add_ulps(part, self._precision.min_normal)

    def _add_nonfinite(self, offset: int, t: Floats, g: Floats, finite: NDArray[np.bool_]) -> None:
        bad = ~finite & (t != g) & ~(np.isnan(t) & np.isnan(g))
        count = int(np.count_nonzero(bad))
        if count and self.first_mismatch < 0:
            self.first_mismatch = offset + int(bad.argmax())
        self.mismatched += count
        equal = int(np.count_nonzero(~finite)) - count
        self.within = [share + equal for share in self.within]

    def _add_greatest(self, part: Part, offset: int, places: Places | None) -> None:
        if part.greatest * (1 + part.slack) > self.max_abs_err:
            error, at = part.greatest_error()
            if error > self.max_abs_err:
                self.max_abs_err = error
                self.worst = offset + int(at if places is None else places[at])

    def _add_relative(self, part: Part) -> None:
        if part.reach * (1 + SLACK) > self.rel_err_max:
            self.rel_err_max = max(self.rel_err_max, part.greatest_ratio())
        for i, beyond in enumerate(part.beyond(_LIMITS)):
            self.within[i] += part.ratio.size - beyond

    def _add_ulps(self, part: Part, least: float) -> None:
        # |g| is less than twice the power of two below it.
        if part.reach * (1 + SLACK) * 2 > self.max_ulp_error:
            self.max_ulp_error = max(self.max_ulp_error, part.greatest_over_power(least, self.max_ulp_error))

    def _metrics(self, numel: int) -> dict[str, float]:
        bad = bool(self.mismatched)
        count = self.count or 1
        metrics = {
            "euclidean": math.inf if bad else math.sqrt(self.dd) / self.products.factor,
            "max_abs_err": math.inf if bad else self.max_abs_err,
            "rel_err_max": math.inf if bad else self.rel_err_max,
            "rel_err_thousandth": self.within[0] / count,
            "rel_err_five_thousandths": self.within[1] / count,
            "nonfinite_mismatch": float(self.mismatched),
        }
        if self._precision is not None:
            metrics["max_ulp_error"] = math.inf if bad else self.max_ulp_error * 2.0**self._precision.mantissa_bits
        if numel > 1 and not bad:
            metrics["cosine_sim"] = self._cosine()
        if bad and self.mismatched < self.count:
            metrics[FINITE_ERROR] = self.max_abs_err
        return metrics

    def _cosine(self) -> float:
        tt, tg = max(self.gg + 2 * self.gd + self.dd, 0.0), self.gg + self.gd
        if not self.dd:
            return 1.0
        if not tt or not self.gg:
            return 0.0
        return max(-1.0, min(1.0, tg / (math.sqrt(tt) * math.sqrt(self.gg))))

    def measured(self, shape: Sequence[int]) -> Measured:
        """Return what was measured of a pair of this shape."""
        norm = math.sqrt(self.gg) / self.products.factor
        return Measured(self._metrics(math.prod(shape)), self._worst_index(shape), self.max_golden, norm)

    def _worst_index(self, shape: Sequence[int]) -> tuple[int, ...] | None:
        flat = self.first_mismatch if self.mismatched else self.worst
        if flat < 0:
            return None
        return tuple(int(part) for part in np.unravel_index(flat // self._width, tuple(shape)))


def measure_by_numpy(row: Row, target: Dump, golden: Dump) -> Row | None:
    """Return a row with the metrics of its two files, None where these ask for torch."""
    value, golden_value = row.target, row.golden
    assert value is not None
    assert golden_value is not None
    mine = load_array(value, target)
    other = None if mine is None else load_array(golden_value, golden)
    if mine is None or other is None or not (_is_exact_in_float64(mine) and _is_exact_in_float64(other)):
        return None
    value = with_statistics(value, lambda: measure(mine))
    if _are_equal(mine, other):
        if golden_value.statistics is None:
            golden_value = replace(golden_value, statistics=value.statistics)
        metrics = equal_metrics(mine.size, has_ulps=_precision(mine.dtype) is not None)
        return replace(row, target=value, golden=golden_value, metrics=metrics)
    measured = measure_arrays(mine, other)
    golden_value = with_statistics(golden_value, lambda: measure(other))
    return replace(row, target=value, golden=golden_value, metrics=measured.scaled_metrics, worst=measured.worst)


def _are_equal(mine: Array, other: Array) -> bool:
    """Return whether two arrays are of one dtype and have the same elements; NaN gives a "no"."""
    return mine.dtype == other.dtype and all((ours == theirs).all() for _, ours, theirs in array_parts(mine, other))


def _is_exact_in_float64(array: Array) -> bool:
    return array.dtype.kind not in "iu" or bool(array.min() >= -EXACT_INTEGERS and array.max() <= EXACT_INTEGERS)


def measure_arrays(target: Array, golden: Array) -> Measured:
    """Measure two arrays of one shape as ``measure_tensors`` does two tensors."""
    forms = [form for form in (_precision(target.dtype), _precision(golden.dtype)) if form is not None]
    return walk(target, golden, min(forms) if len(forms) == 2 else None).measured(target.shape)


def walk(target: Array, golden: Array, precision: Precision | None, width: int = 1) -> Walk:
    """Walk over two arrays, in float32 where both are floats that it holds."""
    is_narrow = precision is not None and max(target.itemsize, golden.itemsize) <= np.dtype(np.float32).itemsize
    dtype = np.float32 if is_narrow else np.float64

    def parts() -> Iterator[tuple[int, Floats, Floats]]:
        for start, mine, other in array_parts(target, golden):
            yield start, as_floats(mine, dtype), as_floats(other, dtype)

    return Walk(parts, precision, min(LENGTH, max(target.size, 1)), width)


def with_statistics(value: Value, measured: Callable[[], Statistics]) -> Value:
    """Return a value with its statistics, which a dump of a static graph leaves to its files."""
    if value.statistics is not None:
        return value
    numbers = measured()
    return replace(value, statistics=(numbers.max, numbers.min, numbers.mean, numbers.norm))


@lru_cache(maxsize=64)
def _precision(dtype: np.dtype[Any]) -> Precision | None:
    """Return that of a dtype, None where it is no float."""
    if dtype == BFLOAT16:
        return Precision(7, 2.0**-126)
    form = np.finfo(dtype) if dtype.kind == "f" else None
    return None if form is None else Precision(int(form.nmant), float(form.smallest_normal))
