"""A series judged by the rules of a policy, in the resolution of its file."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from msprobe_hooks.errors import MonitorError
from msprobe_hooks.extensions.monitor.rules import Rule, Stuck, Vanishing, alarms
from msprobe_hooks.extensions.monitor.series.anomalies import ALARMS_KEPT
from msprobe_hooks.extensions.monitor.series.reader import Run, Series, SeriesKey, open_run
from msprobe_standards.verdict import Outcome, Verdict
from pytest_msprobe.extensions.monitor.policy import MonitorPolicy, PolicyRule
from pytest_msprobe.extensions.monitor.replicas import Replicas
from pytest_msprobe.extensions.monitor.series_names import Alarm, Place, alarmed_of, item_name, places, story
from pytest_msprobe.extensions.monitor.series_results import MonitorSkip, alarmed, skipped, with_spread
from pytest_msprobe.results.result import DirectionResult

_GRADIENTS = ("grad_reduced", "grad_unreduced")


class SeriesJudge(Protocol):
    """Judge of the series of one rank's run."""

    @property
    def keys(self) -> Sequence[SeriesKey]:
        """The series to judge, in the order computed."""

    @property
    def notes(self) -> Sequence[str]:
        """Return what is odd about the files that are judged by, each in a sentence."""

    def judge(self, key: SeriesKey) -> DirectionResult:
        """Return what comes of a series. Raises MonitorError where a file is unusable."""


class RuleJudge:
    """Judges series by the rules of a policy; ``replicas`` are the parameters of all ranks, where there are several."""

    def __init__(self, run: Run, policy: MonitorPolicy, replicas: Replicas | None = None) -> None:
        self._run = run
        self._policy = policy
        self._replicas = replicas

    @property
    def keys(self) -> Sequence[SeriesKey]:
        """All series of the run."""
        return self._run.keys

    @property
    def notes(self) -> Sequence[str]:
        """The notes of the run."""
        return self._run.notes

    @cached_property
    def _places(self) -> dict[SeriesKey, Place]:
        return places(self._run.keys)

    @cached_property
    def _others(self) -> Run:
        """The same run, to look at another series without giving up the neighbours that are read along."""
        return open_run(self._run.folder)

    def judge(self, key: SeriesKey) -> DirectionResult:
        """Return what comes of a series: its earliest alarms, of rules that fail before those that warn."""
        rules = self._policy.rules_for(key)
        is_replica = self._replicas is not None and self._replicas.is_compared(self._run.rank, key)
        if not (rules or is_replica):
            return skipped(key, MonitorSkip.NO_RULE)
        series = self._run.read(key)
        if np.isnan(series.values).all() and self._is_unmeasured(key):
            return skipped(key, MonitorSkip.NOT_MEASURED)
        return with_spread(self._by_rules(series, rules), self._run.rank, series.values)

    def _by_rules(self, series: Series, rules: Sequence[PolicyRule[Rule]]) -> DirectionResult:
        key = series.key
        outcomes: tuple[Outcome, ...] = ("fail", "warn")
        for outcome in outcomes:
            alarms_by_rule = [self._alarms(rule.rule, series) for rule in rules if rule.outcome == outcome]
            alarms_by_rule.append(self._parted(key, outcome))
            merged = list(islice(heapq.merge(*alarms_by_rule, key=lambda alarm: alarm.step), ALARMS_KEPT))
            if merged:
                return alarmed(key, self._run.rank, self._places[key], merged, outcome, story(series, merged))
        names = ", ".join(dict.fromkeys(rule.rule.name for rule in rules))
        return DirectionResult(item_name(key), Verdict("pass", names))

    def _parted(self, key: SeriesKey, outcome: Outcome) -> Iterator[Alarm]:
        """Yield the alarm of a parameter that is no longer that of the other ranks."""
        rule = self._policy.rank_rule_for(key)
        parted = None if self._replicas is None or rule is None else self._replicas.parted(self._run.rank, key)
        if rule is not None and parted is not None and outcome == (rule.outcome if parted.was_equal else "warn"):
            yield Alarm(parted.step, rule.rule.name, parted.reason)

    def _alarms(self, rule: Rule, series: Series) -> Iterator[Alarm]:
        if isinstance(rule, Stuck) and not rule.from_start:
            rule = msgspec.structs.replace(rule, from_start=self._should_have_moved(rule, series))
        # What files rounded away is looked at only where a rule would be broken without.
        if isinstance(rule, (Stuck, Vanishing)) and rule.is_broken(series.values):
            rule = msgspec.structs.replace(rule, resolution=max(rule.resolution, resolution(series.values)))
        for index, reason in alarms(rule, series.values):
            yield Alarm(int(series.steps[index]), rule.name, reason)

    def _should_have_moved(self, rule: Stuck, series: Series) -> bool:
        """Return whether a parameter that does not change from the first step on has gradients all the while."""
        first = series.values[: rule.steps + 1]
        if len(first) <= rule.steps or np.ptp(first) != 0:
            return False
        for task in _GRADIENTS:
            key = replace(series.key, task=task)
            if key in self._places:
                gradients = self._others.read(key)
                within = gradients.values[gradients.steps <= series.steps[rule.steps]]
                return within.size > 0 and bool((within != 0).all())
        return False

    def _is_unmeasured(self, key: SeriesKey) -> bool:
        """Return whether NaN throughout is no value: of a tensor with dimensions, or where NaN could not be counted."""
        if key.statistic == "id":
            return True
        counted = replace(key, statistic="nans")
        return counted in self._places and bool(np.isnan(self._run.read(counted).values).all())


def judge_run(folder: Path, policy: MonitorPolicy) -> tuple[list[DirectionResult], list[DirectionResult]]:
    """Judge all series of a rank's folder; return those that fail, by their first alarms, and those that warn.

    Raises MonitorError where a file is unusable, or none of the series can be judged.
    """
    run = open_run(folder)
    judge = RuleJudge(run, policy)
    skips: Counter[str] = Counter()
    results_by_outcome: dict[str, list[tuple[tuple[int, Place, int], DirectionResult]]] = {"fail": [], "warn": []}
    for result in map(judge.judge, run.keys):
        series = alarmed_of(result.extras)
        if result.verdict.outcome == "skip":
            skips[result.verdict.reason] += 1
        if series is not None:
            results_by_outcome[result.verdict.outcome].append((series.first, result))
    if skips.total() == len(run.keys):
        reasons = [f"{count} skipped: {reason}" for reason, count in skips.most_common()]
        raise MonitorError("; ".join(["no series was judged", *reasons]))
    failed, warned = (
        [result for _, result in sorted(placed_results, key=itemgetter(0))]
        for placed_results in results_by_outcome.values()
    )
    return failed, warned


_FEWEST_DECIMALS, _MOST_DECIMALS = 3, 12


def resolution(values: NDArray[np.float64]) -> float:
    """Return the power of ten that all values are multiples of, as 1e-6; 0 where there are more than 12 decimals.

    Fewer than three decimals are no rounding that a file has, so that counts and constants stay what they are.
    """
    for decimals in range(_FEWEST_DECIMALS, _MOST_DECIMALS + 1):
        if np.array_equal(np.round(values, decimals), values, equal_nan=True):
            return 10.0**-decimals
    return 0.0
