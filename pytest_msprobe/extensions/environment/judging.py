"""Verdicts on pairs of facts of two starts, and what differs in words."""

from __future__ import annotations

import math
from collections.abc import Iterator

from msprobe_hooks.extensions.environment.start_file import RandomCalls, TensorFact
from msprobe_hooks.messages import counted, escaped_name
from msprobe_standards.verdict import Outcome, Verdict
from pytest_msprobe.extensions.environment.fact_pairs import Pair
from pytest_msprobe.extensions.environment.launch_scripts import is_same
from pytest_msprobe.extensions.environment.msprobe_pack import Value

STANDARD = "environment"

_STATISTICS = ("max", "min", "mean", "norm")
# Means and norms of equal values differ by the order of a sum, between tools and cards.
_ROUNDING = 1e-6
_LONGEST = 200
# Version 2.1 is not 2.10.
_EXACT = frozenset({"packages", "switches", "seeds"})


def judge_pair(pair: Pair) -> Verdict:
    """Return the verdict on a fact: an error fails, a warning warns."""
    difference = _difference(pair)
    if difference is None:
        return Verdict("pass", STANDARD, "equal")
    if difference in (_BY_ROUNDING, _UNKNOWN):
        return Verdict("warn", STANDARD, difference)
    outcome: Outcome = "fail" if pair.level == "error" else "warn"
    called = (
        f" ({escaped_name(pair.golden_name)}, by {pair.matched})" if pair.golden_name not in ("", pair.name) else ""
    )
    return Verdict(outcome, STANDARD, f"{difference}{called}", margin=math.inf)


def are_equal(pair: Pair) -> bool:
    """Return whether the two sides agree in a fact."""
    return _difference(pair) is None


_BY_ROUNDING = "max and min are equal, mean or norm differ by rounding; no digests to compare"
_UNKNOWN = "its values are unknown"


def _difference(pair: Pair) -> str | None:
    """Return in words what differs, None where nothing does."""
    target, golden = pair.target, pair.golden
    if target is None or golden is None:
        return _missing(pair)
    if isinstance(target, RandomCalls) and isinstance(golden, RandomCalls):
        counts = f"called {counted(target.count, 'time')}, golden {counted(golden.count, 'time')}"
        return None if target.count == golden.count else "\n".join([counts, *_stack(target)])
    if isinstance(target, TensorFact) and isinstance(golden, TensorFact):
        return _of_tensors(target, golden)
    if isinstance(target, TensorFact) or isinstance(golden, TensorFact):
        return f"{value_text(target)}, golden {value_text(golden)}"
    is_equal = target == golden if pair.section in _EXACT else is_same(target, golden)
    return None if is_equal else f"{value_text(target)}, golden {value_text(golden)}"


def _missing(pair: Pair) -> str:
    has, lacks, value = ("target", "golden environment", pair.target)
    if pair.target is None:
        has, lacks, value = ("golden environment", "target", pair.golden)
    if isinstance(value, RandomCalls):
        return "\n".join(
            [f"called {counted(value.count, 'time')} in the {has}, never from there in the {lacks}", *_stack(value)]
        )
    return f"only the {has} has it: {value_text(value)}"


def _stack(calls: RandomCalls) -> Iterator[str]:
    return (f"  {escaped_name(frame)}" for frame in calls.stack)


def _of_tensors(target: TensorFact, golden: TensorFact) -> str | None:
    if target.dtype and golden.dtype:
        for what in ("dtype", "shape"):
            mine, its = getattr(target, what), getattr(golden, what)
            if mine != its:
                return f"{what} {mine}, golden {its}"
    if target.digest and golden.digest:
        return None if target.digest == golden.digest else f"values differ: {_by_statistics(target, golden)}"
    if all(_is_number_same(getattr(target, name), getattr(golden, name)) for name in _STATISTICS):
        return _UNKNOWN if target.max is None and 0 not in (target.shape or ()) else None
    ends = all(_is_number_same(getattr(target, name), getattr(golden, name)) for name in ("max", "min"))
    rounded = all(_is_close(getattr(target, name), getattr(golden, name), golden.norm) for name in ("mean", "norm"))
    return _BY_ROUNDING if ends and rounded else f"values differ: {_by_statistics(target, golden)}"


def _by_statistics(target: TensorFact, golden: TensorFact) -> str:
    differing = [
        f"{name} {value_text(getattr(target, name))}, golden {value_text(getattr(golden, name))}"
        for name in _STATISTICS
        if not _is_number_same(getattr(target, name), getattr(golden, name))
    ]
    return "; ".join(differing) or "max, min, mean and norm are equal; elements differ, or their order"


def _is_number_same(one: float | None, other: float | None) -> bool:
    return one == other or (one is not None and other is not None and math.isnan(one) and math.isnan(other))


def _is_close(one: float | None, other: float | None, scale: float | None) -> bool:
    if one is None or other is None:
        return True
    return _is_number_same(one, other) or abs(one - other) <= _ROUNDING * max(abs(other), abs(scale or 0.0))


def value_text(value: Value) -> str:
    """Return a value as a reason shows it."""
    if isinstance(value, TensorFact):
        about = f"{value.dtype} {list(value.shape)}, " if value.shape is not None else ""
        return f"{about}max {value_text(value.max)}, min {value_text(value.min)}"
    text = f"{value:.9g}" if isinstance(value, float) else escaped_name(str(value))
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ..."
