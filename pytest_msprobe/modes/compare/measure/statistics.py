"""Two recorded values compared by their statistics: differences, relative differences and one scaled error.

Nothing here needs torch or numpy: a worker that compares statistics starts in tens of milliseconds.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pytest_msprobe.modes.compare.rows import STATISTICS

if TYPE_CHECKING:
    from msprobe_hooks.dump.values import Number, Value

_DIFFERENCES = tuple(f"{name}_diff" for name in STATISTICS)
_RELATIVES = tuple(f"{name}_rel_diff" for name in STATISTICS)
_ZEROS = dict.fromkeys((*_DIFFERENCES, *_RELATIVES), 0.0)


def measure_statistics(target: Value, golden: Value) -> dict[str, float]:
    """Return target less golden, and that over |golden|, for max, min, mean and norm.

    Equal numbers, NaN against NaN and inf against an inf of the same sign differ by 0; any other pair with a NaN or
    inf differs by inf. Relative to a golden 0, a difference is inf. What a side lacks is absent.
    ``nonfinite_mismatch`` is how many elements at least are NaN or inf on one side only, where both sides counted them.
    """
    target_statistics, golden_statistics = target.statistics, golden.statistics
    if target_statistics is None or golden_statistics is None:
        return {}
    mismatch = _nonfinite_mismatch(target, golden)
    if target_statistics == golden_statistics and None not in target_statistics and not mismatch:
        return _ZEROS
    metrics: dict[str, float] = {}
    for name, a, b in zip(_DIFFERENCES, target_statistics, golden_statistics, strict=True):
        if a is not None and b is not None:
            metrics[name] = _difference(a, b)
    for name, difference_name, b in zip(_RELATIVES, _DIFFERENCES, golden_statistics, strict=True):
        if difference_name in metrics:
            metrics[name] = _relative(metrics[difference_name], b)
    if mismatch:
        metrics["nonfinite_mismatch"] = float(mismatch)
    return metrics


def _nonfinite_mismatch(target: Value, golden: Value) -> int:
    if target.nonfinite is golden.nonfinite or target.nonfinite == golden.nonfinite:
        return 0
    # A side that did not count them has none where its extrema are finite.
    (ours, theirs) = (side.nonfinite or _none_of(side) for side in (target, golden))
    if ours is None or theirs is None:
        return 0
    more = [a - b for a, b in zip(ours, theirs, strict=True)]
    return max(sum(each for each in more if each > 0), -sum(each for each in more if each < 0))


def _none_of(value: Value) -> tuple[int, int, int] | None:
    extrema = (value.statistics or (None,))[:2]
    return (0, 0, 0) if all(each is not None and math.isfinite(each) for each in extrema) else None


def _difference(a: Number, b: Number) -> float:
    if a == b or (a != a and b != b):
        return 0.0
    if not (math.isfinite(a) and math.isfinite(b)):
        return -math.inf if a < b else math.inf
    try:
        return float(a - b)
    except OverflowError:
        return math.inf


def _relative(difference: float, golden: Number | None) -> float:
    if difference == 0:
        return 0.0
    if not golden or not math.isfinite(difference):
        return math.inf
    return abs(difference / golden)


def scaled_error(target: Value, golden: Value) -> float | None:
    """Return how far two tensors are apart by their statistics alone, as a fraction of their own scale.

    Max, min and mean are measured against the largest magnitude on either side, the norm against the larger norm: a
    mean or minimum near zero does not make a small difference large. 0.0 is equal, ``inf`` a NaN or inf on one side
    only, None not comparable.
    """
    target_statistics, golden_statistics = target.statistics, golden.statistics
    if target_statistics is None or golden_statistics is None:
        return None
    if _nonfinite_mismatch(target, golden):
        return math.inf
    if target_statistics == golden_statistics:
        return 0.0
    extremes = [abs(x) for x in (*target_statistics[:2], *golden_statistics[:2]) if x is not None and math.isfinite(x)]
    scale = max(extremes, default=0.0)
    worst: float | None = None
    for i, (a, b) in enumerate(zip(target_statistics, golden_statistics, strict=True)):
        if a is None or b is None:
            continue
        difference = abs(_difference(a, b))
        if i == 3 and math.isfinite(a) and math.isfinite(b):
            scale = max(abs(a), abs(b))
        error = 0.0 if difference == 0 else math.inf if not scale or difference == math.inf else difference / scale
        worst = error if worst is None else max(worst, error)
    return worst
