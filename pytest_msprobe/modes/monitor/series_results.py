"""What came of a series, as a result: its alarms, or why it was not judged."""

from __future__ import annotations

import math

import msgspec
import numpy as np
from numpy.typing import NDArray

from msprobe_hooks.instruments.series.reader import SeriesKey
from msprobe_standards.verdict import Outcome, Verdict
from pytest_msprobe.modes.monitor.alarmed import ALARMED, Alarm, Alarmed
from pytest_msprobe.modes.monitor.naming import item_name
from pytest_msprobe.modes.monitor.order import Place
from pytest_msprobe.results.result import DirectionResult
from pytest_msprobe.results.skips import SkipReason
from pytest_msprobe.results.spread import SPREAD, Spread


def alarmed(
    key: SeriesKey, rank: int | None, place: Place, alarms: list[Alarm], outcome: Outcome, story: str
) -> DirectionResult:
    """Return the result of a series with alarms, by the rule of the first of them."""
    told = Alarmed(
        item=item_name(key),
        rank=rank or 0,
        task=key.task,
        vpp_stage=key.vpp_stage,
        name=key.name,
        micro_step=key.micro_step or 0,
        statistic=key.statistic,
        place=place,
        alarms=alarms,
    )
    verdict = Verdict(outcome, alarms[0].rule, story, margin=math.inf)
    return DirectionResult(item_name(key), verdict).with_extra(ALARMED, msgspec.to_builtins(told))


def skipped(key: SeriesKey, reason: SkipReason) -> DirectionResult:
    """Return the result of a series that is not judged."""
    return DirectionResult(item_name(key), Verdict("skip", "", reason.value), skip=reason)


def with_spread(result: DirectionResult, rank: int | None, values: NDArray[np.float64]) -> DirectionResult:
    """Return a result that tells between which numbers the values of its series lie, where any is finite."""
    finite = values[np.isfinite(values)]
    if not finite.size:
        return result
    spread = Spread(rank or 0, float(finite.min()), float(np.median(finite)), float(finite.max()))
    return result.with_extra(SPREAD, msgspec.to_builtins(spread))
