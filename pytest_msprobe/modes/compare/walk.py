"""Sums, counts and maxima over two blocks of numbers, part by part: numpy alone, so that arrays need no torch."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from msprobe_standards.chunking import dot
from pytest_msprobe.modes.compare.rows import SCALED_ERROR

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    #: Yields the parts in index order: where a part begins, the target's and the golden elements of it.
    Parts: TypeAlias = Callable[[], Iterable[tuple[int, Floats, Floats]]]

_EXPONENT_BITS = np.int64(0x7FF << 52)
# Picking elements out costs more than looking at all of them where it is not a small share.
_FEW = 0.1
# The squares of such magnitudes stay within float64, which ends at 1e-308 and 1e308.
_SQUARED_SAFELY = (1e-150, 1e150)


@dataclass(frozen=True, slots=True)
class Measured:
    """What was measured of a pair: the metrics of `rows.TENSOR_METRICS`, the index of the greatest error, the scales.

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
    """Return the scaled metrics of two tensors of the same bytes, of which there is nothing to be measured."""
    zeros = dict.fromkeys(("euclidean", "max_abs_err", "rel_err_max", "nonfinite_mismatch", SCALED_ERROR), 0.0)
    told = {**zeros, "rel_err_thousandth": 1.0, "rel_err_five_thousandths": 1.0}
    return {**told, **({"max_ulp_error": 0.0} if has_ulps else {}), **({"cosine_sim": 1.0} if numel > 1 else {})}


class Precision(NamedTuple):
    """What a unit in the last place of a floating-point format is told by."""

    mantissa_bits: int
    min_normal: float


class Walk:
    """Sums, counts and maxima over one pair of float64 parts; complex numbers are two elements each, of ``width`` 2."""

    def __init__(self, parts: Parts, precision: Precision | None, length: int, width: int = 1) -> None:
        """``length`` is that of the longest part, ``precision`` that of the coarser side where both are floats."""
        self.gg = self.gd = self.dd = 0.0
        self.max_abs_err = self.rel_err_max = self.max_ulp_error = self.max_golden = 0.0
        self.count = self.mismatched = 0
        self.within = [0, 0]
        self.worst = self.first_mismatch = -1
        self.factor = 1.0
        self._width = width
        self._precision = precision
        self._scratch = np.empty((3, length))
        self._flags = np.empty(length, dtype=np.bool_)
        with np.errstate(all="ignore"):
            self._over(parts)
            squares = (self.gg, self.gd, self.dd)
            if self.max_golden and not (
                all(map(math.isfinite, squares)) and _SQUARED_SAFELY[0] < self.max_golden < _SQUARED_SAFELY[1]
            ):
                self.factor = math.ldexp(1.0, min(-math.frexp(self.max_golden)[1], 1000))
                self.gg = self.gd = self.dd = 0.0
                self.count = self.mismatched = 0
                self.within = [0, 0]
                self._over(parts)

    def _over(self, parts: Parts) -> None:
        for offset, target, golden in parts():
            self._add(offset, target, golden)

    def _add(self, offset: int, t: Floats, g: Floats) -> None:
        size = t.size
        self.count += size
        d = np.subtract(t, g, out=self._scratch[0, :size])
        squares = dot(d, d)
        places = None
        if not math.isfinite(squares):
            finite = np.isfinite(t) & np.isfinite(g)
            if not finite.all():
                bad = ~finite & (t != g) & ~(np.isnan(t) & np.isnan(g))
                count = int(np.count_nonzero(bad))
                if count and self.first_mismatch < 0:
                    self.first_mismatch = offset + int(bad.argmax())
                self.mismatched += count
                equal = int(np.count_nonzero(~finite)) - count
                self.within = [share + equal for share in self.within]
                places = np.flatnonzero(finite)
                t, g, d = t[places], g[places], d[places]
                size = t.size
                if not size:
                    return
                squares = dot(d, d)
        m = np.abs(g, out=self._scratch[1, :size])
        self.max_golden = max(self.max_golden, float(m.max()))
        if squares == 0 and not d.any():
            self.within = [share + size for share in self.within]
            self.gg += dot(g, g) if self.factor == 1.0 else dot(g * self.factor, g * self.factor)
            return
        self._add_products(g, d, squares)
        a = np.abs(d, out=d)
        greatest = float(a.max())
        if greatest > self.max_abs_err:
            self.max_abs_err = greatest
            at = int(a.argmax())
            self.worst = offset + (at if places is None else int(places[at]))
        self._add_relative(a, m, size)

    def _add_products(self, g: Floats, d: Floats, squares: float) -> None:
        # With t = g + d, what involves the target follows from these three.
        if self.factor != 1.0:
            g, d = g * self.factor, d * self.factor
            squares = dot(d, d)
        self.gg += dot(g, g)
        self.gd += dot(g, d)
        self.dd += squares

    def _add_relative(self, a: Floats, m: Floats, size: int) -> None:
        ratio = np.divide(a, m, out=self._scratch[2, :size])
        greatest = float(ratio.max())
        if greatest != greatest:
            np.nan_to_num(ratio, copy=False, nan=0.0, posinf=math.inf)
            greatest = float(ratio.max())
        self.rel_err_max = max(self.rel_err_max, greatest)
        for i, limit in enumerate((0.001, 0.005)):
            self.within[i] += size if greatest < limit else int(np.count_nonzero(ratio < limit))
        if self._precision is not None:
            self._add_ulps(self._precision, a, m, ratio, greatest)

    def _add_ulps(self, precision: Precision, a: Floats, m: Floats, ratio: Floats, greatest: float) -> None:
        bits, least = 2.0**precision.mantissa_bits, precision.min_normal
        if math.isfinite(greatest):
            # |golden| is less than twice the power of two below it: errors in the last place are within a factor of two
            # of the relative ones, and only the largest of these can be the largest of those.
            if greatest * bits * 2 <= self.max_ulp_error:
                return
            candidates = np.greater_equal(ratio, greatest / 2, out=self._flags[: ratio.size])
            if np.count_nonzero(candidates) < _FEW * ratio.size:
                places = np.flatnonzero(candidates)
                # Below the normal numbers the last place stays where it is, and relative errors say nothing of it.
                if float(m[places].min()) >= least:
                    a, m, ratio = a[places], m[places], ratio[places]
        # A float64 with its mantissa bits cleared is the power of two below it.
        np.bitwise_and(m.view(np.int64), _EXPONENT_BITS, out=ratio.view(np.int64))
        np.divide(a, np.maximum(ratio, least, out=ratio), out=ratio)
        self.max_ulp_error = max(self.max_ulp_error, float(ratio.max()) * bits)

    @property
    def _golden_norm(self) -> float:
        return math.sqrt(self.gg) / self.factor

    def _metrics(self, numel: int) -> dict[str, float]:
        bad = bool(self.mismatched)
        count = self.count or 1
        metrics = {
            "euclidean": math.inf if bad else math.sqrt(self.dd) / self.factor,
            "max_abs_err": math.inf if bad else self.max_abs_err,
            "rel_err_max": math.inf if bad else self.rel_err_max,
            "rel_err_thousandth": self.within[0] / count,
            "rel_err_five_thousandths": self.within[1] / count,
            "nonfinite_mismatch": float(self.mismatched),
        }
        if self._precision is not None:
            metrics["max_ulp_error"] = math.inf if bad else self.max_ulp_error
        if numel > 1 and not bad:
            metrics["cosine_sim"] = self._cosine()
        return metrics

    def _cosine(self) -> float:
        tt, tg = max(self.gg + 2 * self.gd + self.dd, 0.0), self.gg + self.gd
        if not tt or not self.gg:
            return 1.0 if tt == self.gg else 0.0
        return max(-1.0, min(1.0, tg / (math.sqrt(tt) * math.sqrt(self.gg))))

    def measured(self, shape: Sequence[int]) -> Measured:
        """Return what was measured of a pair of this shape."""
        return Measured(self._metrics(math.prod(shape)), self._worst_index(shape), self.max_golden, self._golden_norm)

    def _worst_index(self, shape: Sequence[int]) -> tuple[int, ...] | None:
        flat = self.first_mismatch if self.mismatched else self.worst
        if flat < 0:
            return None
        return tuple(int(part) for part in np.unravel_index(flat // self._width, tuple(shape)))
