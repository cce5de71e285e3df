"""Two recorded tensors compared element by element, chunk by chunk: memory is that of the pair and a few chunks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from msprobe_standards import chunks, measure
from msprobe_standards.chunking import CHUNK, dot
from msprobe_standards.dtypes import FloatFormat, family, float_format, real_dtype

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

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


def coarser(a: torch.dtype, b: torch.dtype) -> torch.dtype:
    """Return the floating-point dtype with fewer significant bits."""
    return min(a, b, key=lambda dtype: float_format(dtype).mantissa_bits)


def measure_tensors(target: torch.Tensor, golden: torch.Tensor) -> Measured:
    """Measure two CPU tensors of one shape; complex numbers count as two elements each.

    Equal NaN and inf (of the same sign) in the same places have no error; any other is counted in
    ``nonfinite_mismatch`` and makes every error infinite. The relative error of an element is |t - g| / |g|, 0 where
    both are equal, infinite where only the golden one is 0. The cosine is 1 where both are all zero, 0 where only one
    is, and absent for single elements, whose angle says nothing. Raises ValueError for differing shapes.
    """
    if target.shape != golden.shape:
        raise ValueError(f"target has shape {tuple(target.shape)}, golden has {tuple(golden.shape)}")
    target, golden = target.detach().resolve_conj().resolve_neg(), golden.detach().resolve_conj().resolve_neg()
    walk = _Walk(target, golden)
    metrics = walk.metrics(target.numel())
    if not (target.dtype.is_floating_point or target.dtype.is_complex) and family(target.dtype) == family(golden.dtype):
        # Exact beyond 2**53, where float64 is not.
        exact = measure(target, golden)
        metrics["max_abs_err"] = exact["max_abs_err"]
        if exact["max_abs_err"] and walk.worst < 0 and exact.worst_index is not None:
            return Measured(metrics, exact.worst_index, walk.max_golden, walk.golden_norm)
    return Measured(metrics, walk.worst_index(target), walk.max_golden, walk.golden_norm)


class _Walk:
    """Sums, counts and maxima over one pair."""

    def __init__(self, target: torch.Tensor, golden: torch.Tensor) -> None:
        self.gg = self.gd = self.dd = 0.0
        self.max_abs_err = self.rel_err_max = self.max_ulp_error = self.max_golden = 0.0
        self.count = self.mismatched = 0
        self.within = [0, 0]
        self.worst = self.first_mismatch = -1
        self.factor = 1.0
        self._width = 2 if target.is_complex() or golden.is_complex() else 1
        floats = [x.dtype for x in (target, golden) if x.dtype.is_floating_point or x.dtype.is_complex]
        self._format = None if len(floats) < 2 else float_format(real_dtype(coarser(*map(real_dtype, floats))))
        length = min(CHUNK, max(target.numel(), 1)) * self._width
        self._buffers = [torch.empty(length, dtype=torch.float64) for _ in range(2)]
        self._scratch = np.empty((3, length))
        self._flags = np.empty(length, dtype=np.bool_)
        with np.errstate(all="ignore"):
            self._over(target, golden)
            squares = (self.gg, self.gd, self.dd)
            if self.max_golden and not (
                all(map(math.isfinite, squares)) and _SQUARED_SAFELY[0] < self.max_golden < _SQUARED_SAFELY[1]
            ):
                self.factor = math.ldexp(1.0, min(-math.frexp(self.max_golden)[1], 1000))
                self.gg = self.gd = self.dd = 0.0
                self.count = self.mismatched = 0
                self.within = [0, 0]
                self._over(target, golden)

    def _over(self, target: torch.Tensor, golden: torch.Tensor) -> None:
        for offset, target_part, golden_part in chunks(target, golden):
            self._add(offset * self._width, self._load(target_part, 0), self._load(golden_part, 1))

    def _load(self, part: torch.Tensor, slot: int) -> Floats:
        if self._width == 2:
            part = torch.view_as_real(part if part.is_complex() else torch.complex(part.double(), part.double() * 0))
            part = part.reshape(-1)
        if part.dtype != torch.float64:
            part = self._buffers[slot][: part.numel()].copy_(part)
        return part.numpy()

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
        if self._format is not None:
            self._add_ulps(self._format, a, m, ratio, greatest)

    def _add_ulps(self, form: FloatFormat, a: Floats, m: Floats, ratio: Floats, greatest: float) -> None:
        bits, least = 2.0**form.mantissa_bits, form.min_normal
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
    def golden_norm(self) -> float:
        return math.sqrt(self.gg) / self.factor

    def metrics(self, numel: int) -> dict[str, float]:
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
        if self._format is not None:
            metrics["max_ulp_error"] = math.inf if bad else self.max_ulp_error
        if numel > 1 and not bad:
            metrics["cosine_sim"] = self._cosine()
        return metrics

    def _cosine(self) -> float:
        tt, tg = max(self.gg + 2 * self.gd + self.dd, 0.0), self.gg + self.gd
        if not tt or not self.gg:
            return 1.0 if tt == self.gg else 0.0
        return max(-1.0, min(1.0, tg / (math.sqrt(tt) * math.sqrt(self.gg))))

    def worst_index(self, target: torch.Tensor) -> tuple[int, ...] | None:
        flat = self.first_mismatch if self.mismatched else self.worst
        if flat < 0:
            return None
        return tuple(int(part) for part in np.unravel_index(flat // self._width, tuple(target.shape)))
