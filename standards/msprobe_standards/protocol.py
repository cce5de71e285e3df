"""Protocol of a standard, the comparison of measured numbers with its limits, and the reason that a failure states.

A reason is one line, which begins with how many elements are wrong and by how much.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, Protocol

from msprobe_standards.dtypes import Bounds, float_format, msprobe_bounds
from msprobe_standards.verdict import Verdict

if TYPE_CHECKING:
    import torch

    from msprobe_standards.metrics import Metrics


# Derived from Hoeffding's inequality: independent errors exceed it with a probability below 5e-11 (see `bias`).
_CERTAIN = 7

_GREATEST = ("max_ulp_error", "max_scaled_error", "max_abs_err")
_WORDS = {
    "max_ulp_error": "up to {} ulp ({} allowed)",
    "max_scaled_error": "up to {} unit roundoffs ({} allowed)",
    "max_abs_err": "off by up to {} ({} allowed)",
    "shared_error": "neighbouring values err alike, shared_error {} ({} allowed)",
}
# Where all values have the same gain, the worst errs by it and by its own rounding.
_OF_GAIN, _OF_ROUNDING = 1.5, 1.0
_SOME = 0.05
_LARGE, _LARGEST_PLAIN = 1e4, 1e7


class Standard(Protocol):
    """A rule that turns the metrics of one output into a verdict.

    To write one, subclass this in a frozen dataclass whose fields are the limits, set ``name`` and ``wanted``, and
    define `decide`; then `register_standard` it. The other members have defaults:

    * ``wanted`` names the metrics that `decide` reads (see `msprobe_standards.METRICS`).
    * ``needs_baseline``: whether `decide` can use the metrics of an independent result of the target's own precision.
    * ``exact_passes``: whether an output equal to the golden one, rounded to the target's dtype, passes unmeasured.
    * ``judges_integers``: whether it judges integers and bools itself; for others they have to be equal.
    * ``scalars_exact``: whether Python floats must be equal, instead of being judged as float32 scalars.
    * ``adopts_baseline``: whether NaN and inf elements that the target shares with the baseline count as right.
    """

    name: ClassVar[str]
    wanted: ClassVar[frozenset[str]]
    needs_baseline: ClassVar[bool] = False
    exact_passes: ClassVar[bool] = True
    judges_integers: ClassVar[bool] = False
    scalars_exact: ClassVar[bool] = False
    adopts_baseline: ClassVar[bool] = False

    def bounds(self, dtype: torch.dtype) -> Bounds:
        """Return the bounds of the metrics for targets of a dtype."""
        return msprobe_bounds(dtype)

    def for_gradients(self, arriving: Callable[[], float]) -> Standard:
        """Return the standard that judges gradients, by default this one.

        Args:
            arriving: Returns the mean magnitude of the gradients that arrive; calling it costs a walk over them.

        Returns:
            The standard.
        """
        return self

    def settled(self, metrics: Metrics) -> Verdict | None:
        """Return the verdict that no baseline can change, or None where the baseline has to be measured.

        Args:
            metrics: The metrics of the target.

        Returns:
            The verdict or None.
        """
        return None if self.needs_baseline else self.decide(metrics, None)

    def credible(self, baseline_metrics: Metrics, explained: Sequence[Metrics] = ()) -> Metrics:
        """Return what of the CPU's errors counts as a baseline's, by default all of it.

        Args:
            baseline_metrics: The metrics of the same-dtype result of the CPU.
            explained: The metrics of golden for inputs that moved by one rounding unit.

        Returns:
            The same metrics, or lower ones where a correct device cannot err as much.
        """
        return baseline_metrics

    def decide(self, metrics: Metrics, baseline_metrics: Metrics | None) -> Verdict:
        """Judge the metrics of an output.

        Args:
            metrics: The metrics of the target, those of ``wanted`` at least.
            baseline_metrics: The metrics of the baseline; None where there is no baseline.

        Returns:
            The verdict.
        """
        ...

    def weighed(self, verdict: Verdict, metrics: Metrics, moved: Callable[[float], Sequence[Metrics]]) -> Verdict:
        """Return a failing verdict unchanged, or another one where the movement of golden explains the errors.

        Args:
            verdict: The failing verdict.
            metrics: The metrics of the target.
            moved: Returns the metrics of golden for inputs moved by so many rounding units, one per draw; none where
                that is not known. Calling it costs as many golden runs as there are draws.

        Returns:
            The verdict.
        """
        return verdict


def within(
    standard: str,
    metrics: Metrics,
    limits: Mapping[str, float],
    measured: Mapping[str, float] | None = None,
    wrong_share: float | None = None,
    *,
    at_most: bool = False,
) -> Verdict:
    """Return pass where every measured number is at most its limit, else fail with those that are not named.

    ``measured`` defaults to the metrics of the limits' names, ``wrong_share`` is the share of wrong elements where it
    is known and decides. NaN and inf elements that disagree fail whatever the limits. ``at_most`` is that of a verdict
    that passes.
    """
    measured = measured or {name: metrics[name] for name in limits}
    if metrics["nonfinite_mismatch"]:
        return nonfinite(standard, metrics, limits)
    used = {name: _used(measured[name], limit) for name, limit in limits.items()}
    margin = max(used.values(), default=0.0)
    if margin <= 1:
        return Verdict("pass", standard, "", measured, limits, margin, at_most)
    broken = sorted((name for name in limits if used[name] > 1), key=lambda name: -used[name])
    reason = _reason_of(metrics, measured, limits, broken, wrong_share)
    return Verdict("fail", standard, reason, measured, limits, margin)


def nonfinite(standard: str, metrics: Metrics, limits: Mapping[str, float]) -> Verdict:
    """Return the failing verdict on NaN or inf elements that disagree with the golden result."""
    count = float(metrics["nonfinite_mismatch"])
    reason = f"NaN or inf differs from golden in {elements_in_words(count, metrics.numel)}{at_worst(metrics)}"
    limits = {"nonfinite_mismatch": 0.0, **limits}
    return Verdict("fail", standard, reason, {"nonfinite_mismatch": count}, limits, math.inf)


def bias(metrics: Metrics) -> float:
    """Return the drift of the magnitudes, |gain_error| in unit roundoffs, where it is certain, else 0.

    The gain is the least-squares slope of target over golden. The sum of error x golden over the root of the sum of
    its squares (``gain_z``) exceeds 7 with a probability below 5e-11 for independent errors that are as often up as
    down, whatever their sizes: a self-normalized sum, bounded by Hoeffding's inequality
    (``docs/standards-reference.md``, "Where the constants come from").
    """
    return abs(metrics["gain_error"]) if metrics["gain_z"] > _CERTAIN else 0.0


def shared(metrics: Metrics) -> float:
    """Return the error that neighbouring values share, in unit roundoffs, where it is certain, else 0.

    As certain as a `bias`: independent errors that are as often up as down exceed a ``shared_z`` of 7 as rarely.
    """
    return metrics["shared_error"] if metrics["shared_z"] > _CERTAIN else 0.0


def _used(value: float, limit: float) -> float:
    """Return the share of a limit that is used up; NaN, which no limit allows, uses up all of it."""
    if math.isnan(value):
        return math.inf
    if limit > 0:
        return value / limit
    return 0.0 if value <= limit else math.inf


def _reason_of(
    metrics: Metrics,
    measured: Mapping[str, float],
    limits: Mapping[str, float],
    broken: Sequence[str],
    wrong_share: float | None,
) -> str:
    """Return why numbers fail: their reading, the wrong elements, the first of the broken limits and the worst place.

    ``broken`` names the limits that are exceeded, by falling margin; ``wrong_share`` is the share of wrong elements.
    """
    wrong = f"{elements_in_words(wrong_share * metrics.numel, metrics.numel)} wrong" if wrong_share else ""
    reading = list(_reading(metrics, broken)) if "gain_error" in broken else []
    first = min(broken, key=lambda name: (name not in _GREATEST, bool(reading) and name != "gain_error"))
    how_far = "none allowed" if wrong and not limits[first] else exceeded(first, measured[first], limits[first])
    return "; ".join(filter(None, [*reading, ", ".join(filter(None, [wrong, how_far]))])) + at_worst(metrics)


def exceeded(name: str, value: float, limit: float) -> str:
    """Return a number that exceeds its limit, with the limit."""
    return _WORDS.get(name, f"{name} {{}} ({{}} allowed)").format(number(value), number(limit))


def number(value: float) -> str:
    """Return four digits of a number, without an exponent where it is not much longer."""
    digits = f"{value:.4g}"
    return f"{float(digits):.0f}" if _LARGE <= abs(value) < _LARGEST_PLAIN else digits


def elements_in_words(count: float, numel: int) -> str:
    """Return how many of the elements; numbers that were read from a file may be NaN."""
    if count == numel:
        return "the only element" if numel == 1 else f"all {numel} elements"
    return f"{count:.0f} of {numel} elements"


def at_worst(metrics: Metrics) -> str:
    """Return where the greatest error is; empty where that is not known, as of numbers read from a file."""
    return "" if metrics.worst_index is None else f"; at {list(metrics.worst_index)}"


def with_values(reason: str, index: tuple[int, ...], target: complex, golden: complex) -> str:
    """Return a reason with the values at the place that it names, as ``at [0, 2] 0.25, golden 0.5``."""
    result, expected = distinct_digits(target, golden)
    return reason.replace(f"at {list(index)}", f"at {list(index)} {result}, golden {expected}", 1)


def distinct_digits(one: complex, other: complex) -> tuple[str, str]:
    """Return two values in as few digits as show their difference, in 5 at least."""
    if not (isinstance(one, float) and isinstance(other, float)):
        return str(one), str(other)
    texts = [(f"{one:.{digits}g}", f"{other:.{digits}g}") for digits in (5, 9, 17)]
    return next((pair for pair in texts if pair[0] != pair[1]), texts[0])


def _reading(metrics: Metrics, broken: Sequence[str]) -> Iterator[str]:
    """Yield what a gain says in words, where it is that of all values or exceeds its limit most."""
    gain = metrics["gain_error"]
    greatest = next((metrics[name] for name in _GREATEST[:2] if name in metrics), math.inf)
    apart = gain * float_format(metrics.dtype).unit_roundoff
    percent = float(f"{100 * abs(apart):.2g}")
    share = (
        f"{percent:g} % too {'large' if gain > 0 else 'small'}" if -1 <= apart < 1 else f"{1 + apart:.2g} times golden"
    )
    # The relative error is the same for all then, so that a share of elements is beyond a bound as a whole or not.
    is_split = _SOME < metrics.get("tail_share", 0.0) < 1 - _SOME
    if greatest <= _OF_GAIN * abs(gain) + _OF_ROUNDING and not is_split:
        yield f"all values {share}"
    elif broken[0] == "gain_error" and not set(broken) & set(_GREATEST):
        yield f"values {share} on average"
