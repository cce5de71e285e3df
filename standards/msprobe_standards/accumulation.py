"""The walk of `measure` over a floating-point output: sums, counts and maxima, chunk by chunk.

The chunks stay in the processor's cache and every array of a chunk is a reused buffer, so a pass over it costs
a fraction of a pass over memory.
"""

from __future__ import annotations

import math
import threading
from typing import TYPE_CHECKING

import numpy as np
import torch

from msprobe_standards.chunking import CHUNK, chunks, dot
from msprobe_standards.dtypes import Bounds, float_format, real_dtype
from msprobe_standards.tensor_layouts import as_array

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Mask = NDArray[np.bool_]

_EXPONENT_BITS = np.int64(0x7FF << 52)  # IEEE 754 float64: 11 bits above 52 of mantissa
# In place of a golden 0: 0/0 is then 0, and any error over it beyond every limit.
_TINY = float(np.finfo(np.float64).tiny)
# docs/standards-reference.md, "Where the constants come from": the squares of error times golden value stay within
# float64, whose 1e308 is the fourth power of 1e77.
_SQUARED_TWICE_SAFELY = (1e-70, 1e70)
_CARRIERS = {torch.float16: torch.float16, torch.float64: torch.float64}
_HELD_BY = {
    torch.float16: frozenset({torch.float16, torch.float32, torch.float64}),
    torch.bfloat16: frozenset({torch.bfloat16, torch.float32, torch.float64}),
    torch.float32: frozenset({torch.float32, torch.float64}),
    torch.float64: frozenset({torch.float64}),
}


class _Buffers(threading.local):
    """Memory that the chunks of one walk at a time are loaded into and worked on, in each thread: at most 2 MiB."""

    length = 0

    def hold(self, length: int) -> None:
        """Allocate enough for chunks of so many real numbers. Small outputs cost less than new buffers for each."""
        if self.length < length:
            self.loaded = [torch.empty(length, dtype=torch.float64) for _ in range(3)]
            self.scratch = np.empty((4, length))
            self.flags = np.empty((2, length), dtype=np.bool_)
            self.length = length


_buffers = _Buffers()


class Walk:
    """Accumulates what the metrics of one output are made of.

    ``groups`` are the groups of metrics that are wanted. The attributes hold the sums over the finite elements
    and the counts of the others once `over` has run.
    """

    def __init__(self, dtype: torch.dtype, groups: frozenset[str], bounds: Bounds) -> None:
        self.dtype = real_dtype(dtype)
        # Elements that overflow here count as infinite; a bfloat16 is carried, and so judged, as a float32.
        self.carrier = _CARRIERS.get(self.dtype, torch.float32)
        self.overflow = float_format(self.carrier).overflow
        self.format = float_format(self.dtype)
        self.largest = torch.finfo(self.dtype).max
        self.groups = groups
        self.bounds = bounds
        self.factor = 1.0
        self.scale = 0.0
        self._reset()

    def _reset(self) -> None:
        self.count = self.mismatched = self.finite = 0
        self.unequal = self.cast_unequal = self.above = self.below = 0
        self.max_abs_err = self.max_golden = 0.0
        self.tt = self.tg = self.gg = 0.0
        self.within = [0, 0, 0]
        self.special = self.special_bad = 0
        self.small = self.small_over_atol = self.small_over_small_atol = 0
        self.normal = self.normal_over_rtol = 0
        self.normal_squares = self.normal_rel_sum = self.normal_rel_max = 0.0
        self.ulp_sum = self.ulp_max = 0.0
        self.over_ulp = 0
        self.scaled_squares = self.scaled_max = 0.0
        self.dg = self.dg_squares = 0.0
        self.over_tail = 0
        self.where: dict[str, int] = {}

    def over(self, target: torch.Tensor, golden: torch.Tensor, scale: float | None = None) -> None:
        """Walk over two tensors of the same shape and family, float or complex; without a ``scale`` it is theirs."""
        self._allocate(target)
        with np.errstate(all="ignore"):
            if self.needs_scale:
                self.scale = self._mean_magnitude(golden) if scale is None else scale
            self._walk(target, golden)
            if not self.is_squared_safely:
                peak = self.max_golden + self.max_abs_err
                self.factor = math.ldexp(1.0, min(-math.frexp(peak)[1], 1000))
                self._reset()
                self._walk(target, golden)

    @property
    def needs_scale(self) -> bool:
        """Return whether what is wanted depends on the scale of the whole output."""
        return "scaled" in self.groups or self.bounds.ulp_floor > 0

    @property
    def is_squared_safely(self) -> bool:
        """Return whether the squares of what was walked over stay within float64."""
        peak = self.max_golden + self.max_abs_err
        return not peak or _SQUARED_TWICE_SAFELY[0] < peak < _SQUARED_TWICE_SAFELY[1]

    def over_block(self, target: torch.Tensor, golden: torch.Tensor, first: int) -> None:
        """Walk on over a block of an output whose ``scale`` is set; ``first`` elements came before it."""
        self._allocate(target)
        with np.errstate(all="ignore"):
            self._walk(target, golden, first)

    def magnitude(self, golden: torch.Tensor) -> tuple[float, int]:
        """Return the sum of the magnitudes, and the count, of the finite golden elements but 0 that fit the dtype."""
        self._allocate(golden)
        with np.errstate(all="ignore"):
            return self._magnitude(golden)

    def _allocate(self, target: torch.Tensor) -> None:
        _buffers.hold(min(CHUNK, target.numel()) * (2 if target.is_complex() else 1))
        self._loaded, self._scratch, self._flags = _buffers.loaded, _buffers.scratch, _buffers.flags

    def _walk(self, target: torch.Tensor, golden: torch.Tensor, first: int = 0) -> None:
        for offset, target_part, golden_part in chunks(target, golden, first):
            self._add(offset, target_part, golden_part)

    def _mean_magnitude(self, golden: torch.Tensor) -> float:
        """Return the mean magnitude of the finite golden elements but 0 that the target's dtype can hold."""
        total, count = self._magnitude(golden)
        return total / count if count else 0.0

    def _magnitude(self, golden: torch.Tensor) -> tuple[float, int]:
        total, count = 0.0, 0
        for _, part, _ in chunks(golden, golden):
            values = self._load(part, 0)
            magnitude = np.abs(values, out=self._scratch[0, : values.size])
            part_sum = float(magnitude.sum())
            if not math.isfinite(part_sum) or part_sum >= self.format.overflow:
                magnitude = magnitude[magnitude < self.format.overflow]
                part_sum = float(magnitude.sum())
            total += part_sum
            # The rows of a table that no token names say nothing of how large the others' sums are.
            count += int(np.count_nonzero(magnitude))
        return total, count

    def _load(self, part: torch.Tensor, slot: int) -> Floats:
        """Return the real numbers of a flat part as float64; only the reader's own buffers may be written to."""
        if part.is_complex():
            part = torch.view_as_real(part).reshape(-1)
        if part.dtype is torch.float64:
            return as_array(part)
        loaded: Floats = self._loaded[slot][: part.numel()].copy_(part).numpy()
        return loaded

    def _rounded(self, part: torch.Tensor, to: torch.dtype, exact: Floats) -> Floats:
        """Return the golden part rounded to the real dtype ``to``, as float64."""
        if to in _HELD_BY.get(real_dtype(part.dtype), ()):
            return exact
        if part.is_complex():
            part = torch.view_as_real(part).reshape(-1)
        return self._load(part.to(to), 2)

    def _add(self, offset: int, target_part: torch.Tensor, golden_part: torch.Tensor) -> None:
        t, g = self._load(target_part, 0), self._load(golden_part, 1)
        size = t.size
        self.count += size
        if self.dtype.itemsize == 1:
            # These casts may saturate: beyond the largest finite value, what the cast gives is the right result.
            g = np.where(np.abs(g) > self.largest, self._rounded(golden_part, self.dtype, g), g)
        if "equality" in self.groups:
            self.unequal += _unequal(t, g)
        if "cast" in self.groups:
            self.cast_unequal += _unequal(t, self._rounded(golden_part, self.dtype, g))
        if "balance" in self.groups:
            carried = self._rounded(golden_part, self.carrier, g)
            self.above += int(np.count_nonzero(np.greater(t, carried, out=self._flags[0, :size])))
            self.below += int(np.count_nonzero(np.less(t, carried, out=self._flags[0, :size])))
        d = np.subtract(t, g, out=self._scratch[0, :size])
        positions = None
        if not math.isfinite(squares := dot(d, d)):
            finite = np.isfinite(t) & np.isfinite(g)
            if not finite.all():
                positions = np.flatnonzero(finite)
                self._add_nonfinite(offset, t, self._rounded(golden_part, self.dtype, g), finite)
        m = np.abs(g, out=self._scratch[2, :size])
        if target_part.is_complex():
            modulus = np.hypot(g[0::2], g[1::2])
            m = np.where(np.isfinite(modulus), modulus, 0.0).repeat(2)
            np.maximum(m, np.abs(g), out=m)
        if positions is not None:
            t, g, d, m = t[positions], g[positions], d[positions], m[positions]
            squares = dot(d, d)
        if t.size:
            self._add_finite(t, g, d, m, squares, offset, positions)

    def _add_nonfinite(self, offset: int, t: Floats, cast: Floats, finite: Mask) -> None:
        at = np.flatnonzero(~finite)
        t, cast = t[at], cast[at]
        bad = (t != cast) & ~(np.isnan(t) & np.isnan(cast))
        self.special += at.size
        if count := int(np.count_nonzero(bad)):
            self.mismatched += count
            self.special_bad += count
            self.where.setdefault("nonfinite_mismatch", offset + int(at[bad.argmax()]))

    def _add_finite(
        self,
        t: Floats,
        g: Floats,
        d: Floats,
        m: Floats,
        squares: float,
        offset: int,
        positions: NDArray[np.intp] | None,
    ) -> None:
        size = t.size
        self.finite += size
        a = np.abs(d, out=self._scratch[1, :size])
        ratio = self._scratch[3, :size]
        self.max_abs_err = self._greatest("max_abs_err", a, self.max_abs_err, offset, positions)
        self.max_golden = max(self.max_golden, float(m.max()))
        groups = self.groups
        if "ulp" in groups:
            self._add_ulps(a, m, ratio, offset, positions)
        if "scaled" in groups:
            floor = max(self.scale, self.format.min_normal)
            np.divide(a, np.maximum(m, floor, out=ratio), out=ratio)
            self.scaled_max = self._greatest("max_scaled_error", ratio, self.scaled_max, offset, positions)
            self.scaled_squares += dot(ratio, ratio)
        # Of a tail only errors beyond noise count, and mostly there is none.
        has_tail = "scaled" in groups and self.max_abs_err > self._noise()
        if has_tail or "relative" in groups or "regions" in groups:
            np.divide(a, np.maximum(m, _TINY, out=ratio), out=ratio)
            greatest = float(ratio.max())
            if "relative" in groups:
                for i, limit in enumerate((0.01, 0.001, 0.0001)):
                    self.within[i] += size if greatest < limit else int(np.count_nonzero(ratio < limit))
            if has_tail and greatest > self.bounds.tail:
                far = np.greater(ratio, self.bounds.tail, out=self._flags[0, :size])
                far &= a > self._noise()
                self.over_tail += int(np.count_nonzero(far))
            if "regions" in groups:
                self._add_regions(a, m, ratio, greatest, squares)
        if "cosine" in groups or "scaled" in groups:
            if self.factor != 1.0:
                t, g, d = t * self.factor, g * self.factor, d * self.factor
            self.gg += dot(g, g)
            if "cosine" in groups:
                self.tt += dot(t, t)
                self.tg += dot(t, g)
            if "scaled" in groups:
                product = np.multiply(d, g, out=ratio)
                self.dg += float(product.sum())
                self.dg_squares += dot(product, product)

    def _noise(self) -> float:
        """Return the absolute error that says nothing of a small element: subnormal rounding, float32 partial sums.

        The factor of 16 is that of ``docs/standards-reference.md``, "Where the constants come from".
        """
        roundoff = self.format.unit_roundoff
        noise = max(roundoff * self.format.min_normal, 16 * min(roundoff, 2**-24) * self.scale)
        return min(noise, self.bounds.tail_noise) if self.bounds.tail_noise else noise

    def _greatest(self, name: str, x: Floats, so_far: float, offset: int, positions: NDArray[np.intp] | None) -> float:
        index = int(x.argmax())
        greatest = float(x[index])
        if greatest <= so_far:
            return so_far
        self.where[name] = offset + (index if positions is None else int(positions[index]))
        return greatest

    def _add_ulps(self, a: Floats, m: Floats, ulps: Floats, offset: int, positions: NDArray[np.intp] | None) -> None:
        # A float64 with its mantissa bits cleared is the power of two below it: exact, unlike a logarithm.
        np.bitwise_and(m.view(np.int64), _EXPONENT_BITS, out=ulps.view(np.int64))
        bounds = self.bounds
        np.maximum(ulps, max(self.format.min_normal, bounds.ulp_least, bounds.ulp_floor * self.scale), out=ulps)
        np.divide(a, ulps, out=ulps)
        ulps *= 2.0**self.format.mantissa_bits
        self.ulp_sum += float(ulps.sum())
        before = self.ulp_max
        self.ulp_max = self._greatest("max_ulp_error", ulps, before, offset, positions)
        if self.ulp_max > self.bounds.ulp:
            self.over_ulp += int(np.count_nonzero(np.greater(ulps, self.bounds.ulp, out=self._flags[0, : ulps.size])))

    def _add_regions(self, a: Floats, m: Floats, rel: Floats, greatest: float, squares: float) -> None:
        bounds, size = self.bounds, a.size
        excluded = np.less_equal(m, bounds.small_value, out=self._flags[0, :size])
        small = int(np.count_nonzero(excluded))
        if small:
            over = np.greater(a, bounds.atol, out=self._flags[1, :size])
            self.small_over_atol += int(np.count_nonzero(np.logical_and(over, excluded, out=over)))
            over = np.greater(a, bounds.small_atol, out=self._flags[1, :size])
            self.small_over_small_atol += int(np.count_nonzero(np.logical_and(over, excluded, out=over)))
        infinite = 0
        if self.max_golden >= self.overflow:
            overflowing = m >= self.overflow
            infinite = int(np.count_nonzero(overflowing))
            excluded |= overflowing
        if small or infinite:
            np.copyto(rel, 0.0, where=excluded)
            greatest = float(rel.max())
            squares = self._squares(np.where(excluded, 0.0, a))
        elif self.factor != 1.0:
            squares = self._squares(a)
        self.small += small
        self.special += infinite
        self.special_bad += infinite
        self.normal += size - small - infinite
        self.normal_squares += squares
        self.normal_rel_sum += float(rel.sum())
        self.normal_rel_max = max(self.normal_rel_max, greatest)
        if greatest > bounds.rtol:
            self.normal_over_rtol += int(np.count_nonzero(np.greater(rel, bounds.rtol, out=self._flags[1, :size])))

    def _squares(self, a: Floats) -> float:
        scaled = a * self.factor
        return dot(scaled, scaled)


def _unequal(t: Floats, g: Floats) -> int:
    different = t != g
    count = int(np.count_nonzero(different))
    if count:
        count -= int(np.count_nonzero(np.isnan(t[different]) & np.isnan(g[different])))
    return count
