"""Rules on series, for a training process and for whole series: turbulence, single values, windows of steps."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from itertools import accumulate
from typing import Annotated, Any, ClassVar, Final, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

#: What a limit may be, and a number of recorded steps.
Limit = Annotated[float, msgspec.Meta(ge=0)]
Count = Annotated[int, msgspec.Meta(ge=1)]


class Detector(Protocol):
    """A rule at work on one series."""

    def feed(self, value: float) -> str | None:
        """Take the next value; return what is wrong with it and what was allowed, None where nothing is."""


class Rule(Protocol):
    """Requirement on a series."""

    #: What policies and reports call it.
    name: ClassVar[str]

    def detector(self) -> Detector:
        """Return what watches one series, from its first value on."""

    def is_broken(self, values: NDArray[np.float64]) -> bool:
        """Return whether a detector would find any of the values wrong."""


def alarms(rule: Rule, values: NDArray[np.float64]) -> Iterator[tuple[int, str]]:
    """Yield the index of each value that breaks a rule, with what is wrong; a series that keeps it costs little."""
    if rule.is_broken(values):
        detector = rule.detector()
        for index, value in enumerate(values.tolist()):
            reason = detector.feed(value)
            if reason is not None:
                yield index, reason


class Turbulence(msgspec.Struct, frozen=True):
    """A value exceeds the mean of the earlier ones by more than ``threshold`` times that mean.

    AnomalyTurbulence of msprobe: in 1.2.2 the mean is that of all earlier values, and where it is not positive a value
    must not lie below the bound; in 26.x (``decay`` 0.99) it is an exponential one of magnitudes. The first value is
    its own mean. NaN and inf do not enter the mean.
    """

    name: ClassVar[str] = "turbulence"

    threshold: Limit
    decay: Annotated[float, msgspec.Meta(ge=0, lt=1)] | None = None

    def detector(self) -> Detector:
        """Return a detector with the mean of nothing."""
        return _TurbulenceDetector(self)

    def is_broken(self, values: NDArray[np.float64]) -> bool:
        """Judge all values."""
        if self.decay is not None:
            values = np.abs(values)
        # The mean before the first value is that value.
        means = np.fromiter(accumulate(values.tolist(), _Mean(self.decay), initial=math.nan), np.float64)[:-1]
        means = np.where(np.isnan(means), values, means)
        with np.errstate(invalid="ignore", over="ignore"):
            bounds = means * (1 + self.threshold)
            return bool(np.where(means > 0, values > bounds, values < bounds).any())

    def breaks(self, value: float, mean: float) -> bool:
        """Return whether a value breaks the bound that follows from the mean of the earlier ones."""
        bound = mean * (1 + self.threshold)
        return value > bound if mean > 0 else value < bound


class _Mean:
    """The mean after each value, called with the mean before it (NaN where there is none) and the value."""

    def __init__(self, decay: float | None) -> None:
        self._decay = decay
        self._count = 0

    def __call__(self, mean: float, value: float) -> float:
        if not math.isfinite(value):
            return mean
        self._count += 1
        if math.isnan(mean):
            return value
        if self._decay is None:
            return (mean * (self._count - 1) + value) / self._count
        return self._decay * mean + (1 - self._decay) * value


class _TurbulenceDetector:
    def __init__(self, rule: Turbulence) -> None:
        self._rule = rule
        self._mean_after = _Mean(rule.decay)
        self._mean = math.nan

    def feed(self, value: float) -> str | None:
        """Judge a value by the mean of the earlier ones, then let it enter."""
        judged = value if self._rule.decay is None else abs(value)
        mean = judged if math.isnan(self._mean) else self._mean
        self._mean = self._mean_after(self._mean, judged)
        if not self._rule.breaks(judged, mean):
            return None
        bound, side = mean * (1 + self._rule.threshold), "up" if mean > 0 else "down"
        kind = "mean" if self._rule.decay is None else "exponential mean of the magnitudes"
        return f"is {value:.6g}; allowed: {side} to {bound:.6g}; the {kind} of earlier steps is {mean:.6g}"


class NotFinite(msgspec.Struct, frozen=True):
    """A value is NaN or, where ``inf`` is True, infinite, or its magnitude is above a threshold; AnomalyNan of 26.x."""

    name: ClassVar[str] = "nan"

    threshold: Limit | None = None
    inf: bool = True

    def detector(self) -> Detector:
        """Return itself: it remembers nothing."""
        return self

    def feed(self, value: float) -> str | None:
        """Judge one value."""
        if math.isnan(value):
            return "is NaN"
        if self.inf and math.isinf(value):
            return f"is {value}"
        if self.threshold is not None and abs(value) > self.threshold:
            return f"is {value:.6g}; allowed: a magnitude up to {self.threshold:.6g}"
        return None

    def is_broken(self, values: NDArray[np.float64]) -> bool:
        """Judge all values."""
        if np.isnan(values).any() or (self.inf and np.isinf(values).any()):
            return True
        return self.threshold is not None and bool((np.abs(values) > self.threshold).any())


#: By dtype: the least magnitude that rounds to infinity or NaN, and the largest that rounds to 0 (IEEE 754-2019, 4.3.1;
#: float8: the OCP's OFP8 specification, whose e4m3 has no infinity and NaN in place of the last number).
_RANGES: Final = {
    "float64": (math.inf, 0.0),
    "float32": ((2 - 2.0**-24) * 2.0**127, 2.0**-150),
    "bfloat16": ((2 - 2.0**-8) * 2.0**127, 2.0**-134),
    "float16": (65520.0, 2.0**-25),
    "float8_e5m2": (61440.0, 2.0**-17),
    "float8_e4m3fn": (464.0, 2.0**-10),
}

#: The dtypes whose range is known.
DTYPES: Final = tuple(_RANGES)


class Overflow(msgspec.Struct, frozen=True):
    """The magnitude of an extremum rounds to infinity in a dtype; for minima and maxima."""

    name: ClassVar[str] = "overflow"

    dtype: str

    def detector(self) -> Detector:
        """Return itself: it remembers nothing."""
        return self

    def feed(self, value: float) -> str | None:
        """Judge one value; one that is infinite already is `NotFinite`'s matter."""
        limit = _RANGES[self.dtype][0]
        if math.isfinite(value) and abs(value) >= limit:
            return f"is {value:.6g}, out of range of {self.dtype}; allowed: a magnitude below {limit:.6g}"
        return None

    def is_broken(self, values: NDArray[np.float64]) -> bool:
        """Judge all values."""
        magnitudes = np.abs(values)
        return bool(((magnitudes >= _RANGES[self.dtype][0]) & (magnitudes < math.inf)).any())


class Underflow(msgspec.Struct, frozen=True):
    """A norm is so small that every element rounds to 0 in a dtype, for none is larger than their norm."""

    name: ClassVar[str] = "underflow"

    dtype: str

    def detector(self) -> Detector:
        """Return itself: it remembers nothing."""
        return self

    def feed(self, value: float) -> str | None:
        """Judge one value; 0 itself loses nothing."""
        limit = _RANGES[self.dtype][1]
        if 0 < abs(value) <= limit:
            return f"is {value:.6g}, so every element is 0 in {self.dtype}; allowed: above {limit:.6g}"
        return None

    def is_broken(self, values: NDArray[np.float64]) -> bool:
        """Judge all values."""
        magnitudes = np.abs(values)
        return bool(((magnitudes > 0) & (magnitudes <= _RANGES[self.dtype][1])).any())


class Exploding(msgspec.Struct, frozen=True):
    """A magnitude is more than ``factor`` times all that the series had until ``within`` values before.

    So are a jump, and a growth by that factor within so many values. The first ``after`` values are not judged, and
    until there are enough they are what others are judged by. Zeros alone are nothing to judge by.
    """

    name: ClassVar[str] = "exploding"

    factor: Limit = 100.0
    within: Count = 20
    after: Count = 10

    def detector(self) -> Detector:
        """Return a detector that has seen nothing."""
        return _ExplodingDetector(self)

    def is_broken(self, values: NDArray[np.float64]) -> bool:
        """Judge all values."""
        magnitudes = np.where(np.isfinite(values), np.abs(values), 0.0)
        largest = np.maximum.accumulate(magnitudes)
        judged = np.arange(self.after, len(values))
        references = largest[np.maximum(judged - self.within, self.after - 1)]
        with np.errstate(over="ignore"):
            allowed = self.factor * references
        return bool(((references > 0) & (magnitudes[self.after :] > allowed)).any())


class _ExplodingDetector:
    def __init__(self, rule: Exploding) -> None:
        self._rule = rule
        self._count = 0
        # The largest magnitude up to each of the latest values.
        self._largest: deque[float] = deque(maxlen=max(rule.within, rule.after))

    def feed(self, value: float) -> str | None:
        """Judge a value by the largest of those long enough ago."""
        rule, index = self._rule, self._count
        magnitude = abs(value) if math.isfinite(value) else 0.0
        reason = None
        if index >= rule.after:
            first_kept = index - len(self._largest)
            reference = self._largest[max(index - rule.within, rule.after - 1) - first_kept]
            if reference > 0 and magnitude > rule.factor * reference:
                reason = (
                    f"is {value:.6g}; allowed: a magnitude up to {rule.factor * reference:.6g}, {rule.factor:g} times "
                    f"the largest until {rule.within} recorded steps before ({reference:.6g})"
                )
        self._largest.append(max(magnitude, self._largest[-1] if self._largest else 0.0))
        self._count += 1
        return reason


class Vanishing(msgspec.Struct, frozen=True):
    """The latest ``steps`` magnitudes are all at most ``factor`` times each of as many ``within`` values before.

    ``from_start``: so have the first ``steps`` where all are 0. ``resolution`` is what values were rounded to multiples
    of: a magnitude of 0 then says no more than half of it.
    """

    name: ClassVar[str] = "vanishing"

    factor: Limit = 1e-5
    within: Count = 20
    steps: Count = 10
    resolution: Limit = 0.0
    from_start: bool = False

    def detector(self) -> Detector:
        """Return a detector that has seen nothing."""
        return _VanishingDetector(self)

    def is_broken(self, values: NDArray[np.float64]) -> bool:
        """Judge all values."""
        width, magnitudes, finite = self.steps, np.abs(values), np.isfinite(values)
        if self.from_start and len(values) >= width and not values[:width].any():
            return True
        latest = _rolling(np.maximum, np.where(finite, np.maximum(magnitudes, self.resolution / 2), math.inf), width)
        earlier = _rolling(np.minimum, np.where(finite, magnitudes, 0.0), width)
        # A window is known by its first value.
        judged = np.arange(width, len(latest))
        references = earlier[np.maximum(judged - max(self.within, width), 0)]
        with np.errstate(over="ignore"):
            allowed = self.factor * references
        return bool(((references > 0) & (latest[width:] <= allowed)).any())


class _VanishingDetector:
    def __init__(self, rule: Vanishing) -> None:
        self._rule = rule
        self._kept: deque[float] = deque(maxlen=max(rule.within, rule.steps) + rule.steps)

    def feed(self, value: float) -> str | None:
        """Judge the latest values by those long enough ago."""
        rule, kept = self._rule, self._kept
        kept.append(abs(value))
        if rule.from_start and len(kept) == rule.steps and not any(kept):
            return f"has been 0 for the first {rule.steps} recorded steps"
        if len(kept) < 2 * rule.steps:
            return None
        magnitudes = list(kept)
        earlier, latest = magnitudes[: rule.steps], magnitudes[-rule.steps :]
        if not all(map(math.isfinite, [*earlier, *latest])):
            return None
        largest, reference = max(*latest, rule.resolution / 2), min(earlier)
        if reference == 0 or largest > rule.factor * reference:
            return None
        return (
            f"has been {max(latest):.6g} at most for {rule.steps} recorded steps; allowed: above "
            f"{rule.factor * reference:.6g}, {rule.factor:g} times that {len(kept) - rule.steps} recorded steps before"
        )


class Stuck(msgspec.Struct, frozen=True):
    """After ``after`` changes in a row a value stays the same, to the bit, for ``steps`` values; reported once.

    ``from_start``: so is one that never changed. ``resolution`` is what values were rounded to multiples of: slowly
    changing ones look stuck, so changes are those of more than ten times it.
    """

    name: ClassVar[str] = "stuck"

    steps: Count = 10
    after: Count = 5
    resolution: Limit = 0.0
    from_start: bool = False

    def detector(self) -> Detector:
        """Return a detector that has seen nothing."""
        return _StuckDetector(self)

    def is_broken(self, values: NDArray[np.float64]) -> bool:
        """Judge all values."""
        with np.errstate(invalid="ignore", over="ignore"):
            changes = np.abs(np.diff(values))
        same = _rolling(np.logical_and, changes == 0, self.steps)
        changed = _rolling(np.logical_and, changes > 10 * self.resolution, self.after)
        if self.from_start and same[:1].any():
            return True
        pairs = min(len(same) - self.after, len(changed))
        return pairs > 0 and bool((same[self.after : self.after + pairs] & changed[:pairs]).any())


class _StuckDetector:
    def __init__(self, rule: Stuck) -> None:
        self._rule = rule
        self._last = math.nan
        self._count = self._changes = self._same = 0

    def feed(self, value: float) -> str | None:
        """Count changes, then how long there are none."""
        rule, change = self._rule, abs(value - self._last)
        self._last = value
        self._count += 1
        if change == 0:
            self._same += 1
        else:
            changes = 0 if self._same else self._changes
            self._changes = changes + 1 if change > 10 * rule.resolution else 0
            self._same = 0
        never = self._count == self._same + 1
        if self._same != rule.steps or not (self._changes >= rule.after or (never and rule.from_start)):
            return None
        before = "it has never changed" if never else "it changed at each earlier step"
        return f"has been {value:.6g} for {rule.steps} recorded steps; {before}"


def _rolling(function: np.ufunc, values: NDArray[Any], width: int) -> NDArray[Any]:
    """Return a function's value for each window of so many values, by the window's first; none of too few values."""
    count = max(len(values) - width + 1, 0)
    result: NDArray[Any] = values[:count].copy()
    for shift in range(1, width):
        function(result, values[shift : shift + count], out=result)
    return result
