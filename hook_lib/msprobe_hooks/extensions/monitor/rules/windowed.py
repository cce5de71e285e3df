"""Rules that judge the latest values by those some steps before."""

from __future__ import annotations

import math
from collections import deque
from typing import Any, ClassVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from msprobe_hooks.extensions.monitor.rules.rule import Count, Detector, Limit


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
