"""Reasons of failing verdicts: one line, which begins with how many elements are wrong and by how much."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from msprobe_standards.dtypes import float_format

if TYPE_CHECKING:
    from msprobe_standards.metrics import Metrics

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


def reason_of(
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
    percent = 100 * abs(gain) * float_format(metrics.dtype).unit_roundoff
    share = f"{percent:.2g} % too {'large' if gain > 0 else 'small'}"
    # The relative error is the same for all then, so that a share of elements is beyond a bound as a whole or not.
    is_split = _SOME < metrics.get("tail_share", 0.0) < 1 - _SOME
    if greatest <= _OF_GAIN * abs(gain) + _OF_ROUNDING and not is_split:
        yield f"all values {share}"
    elif broken[0] == "gain_error" and not set(broken) & set(_GREATEST):
        yield f"values {share} on average"
