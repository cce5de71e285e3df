"""The standards for monitored training, rules in YAML, and a series judged by them in the resolution of its file."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cached_property
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import Annotated, Any, ClassVar, Generic, Literal, Protocol, TypeVar, cast

import msgspec
import numpy as np
from numpy.typing import NDArray

from msprobe_hooks.errors import ConfigError, MonitorError
from msprobe_hooks.extensions.monitor.rules import RULES, Rule, Stuck, Vanishing, alarms, make_rule
from msprobe_hooks.extensions.monitor.series.anomalies import ALARMS_KEPT
from msprobe_hooks.extensions.monitor.series.reader import Run, Series, SeriesKey, open_run
from msprobe_hooks.regular_files import read_regular
from msprobe_standards.decoding import YamlError, decode_yaml
from msprobe_standards.validation import shown
from msprobe_standards.verdict import Outcome, Verdict
from pytest_msprobe.errors import RulesError, unknown
from pytest_msprobe.extensions.monitor.replicas import Replicas
from pytest_msprobe.extensions.monitor.series_names import (
    Alarm,
    MonitorSkip,
    Place,
    alarmed,
    alarmed_of,
    item_name,
    places,
    skipped,
    story,
    with_single_step,
    with_spread,
)
from pytest_msprobe.results.result import DirectionResult

_GRADIENTS = ("grad_reduced", "grad_unreduced")

_FEWEST_DECIMALS, _MOST_DECIMALS = 3, 12

Share = Annotated[float, msgspec.Meta(ge=0, le=1)]

# Users type the names that the policies for checks have too; a file's name says which kind of run it is for.
_BUILT_IN = {
    file.stem.removeprefix("monitor-"): file for file in (Path(__file__).parent / "policies").glob("monitor-*.yaml")
}
_LISTS = ("tasks", "statistics", "names", "except")
_KEYS = ("rule", "limits", *_LISTS, "outcome")
_NEED_DTYPE = ("overflow", "underflow")

AnyRule = TypeVar("AnyRule", covariant=True)


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
        result = with_spread(self._by_rules(series, rules), self._run.rank, series.values)
        return with_single_step(result, len(series.values))

    def _by_rules(self, series: Series, rules: Sequence[_PolicyRule[Rule]]) -> DirectionResult:
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


def resolution(values: NDArray[np.float64]) -> float:
    """Return the power of ten that all values are multiples of, as 1e-6; 0 where there are more than 12 decimals.

    Fewer than three decimals are no rounding that a file has, so that counts and constants stay what they are.
    """
    for decimals in range(_FEWEST_DECIMALS, _MOST_DECIMALS + 1):
        if np.array_equal(np.round(values, decimals), values, equal_nan=True):
            return 10.0**-decimals
    return 0.0


class SignSimilarity(msgspec.Struct, frozen=True):
    """The least share of equal signs at the first step, and how far it may drop from one step to the next.

    The defaults are those of msprobe's documentation of its gradient probe.
    """

    name: ClassVar[str] = "sign_similarity"
    first: Share = 0.97
    drop: Share = 0.03


class RankDifference(msgspec.Struct, frozen=True):
    """Allowed distance of a parameter's statistic from that of other ranks that began with the same parameter.

    Such ranks compute the same update, so that honest ones do not differ at all; the default is 32 roundings of
    float32.
    """

    name: ClassVar[str] = "replicas"

    apart: Annotated[float, msgspec.Meta(ge=0)] = 2e-6


_KINDS: Mapping[str, type[Any]] = {
    **RULES,
    SignSimilarity.name: SignSimilarity,
    RankDifference.name: RankDifference,
}


@dataclass(frozen=True, slots=True)
class _PolicyRule(Generic[AnyRule]):
    """A rule and the series that it is for.

    ``tasks`` and ``statistics`` are words, ``names`` and ``exempt`` patterns of ``task/name`` such as ``actv/*.input``;
    an empty one of the first three means all.
    """

    rule: AnyRule
    tasks: tuple[str, ...]
    statistics: tuple[str, ...]
    names: tuple[str, ...]
    exempt: tuple[str, ...]
    outcome: Literal["fail", "warn"]

    def is_for(self, key: SeriesKey) -> bool:
        """Return whether a series must keep to the rule."""
        if (self.tasks and key.task not in self.tasks) or (self.statistics and key.statistic not in self.statistics):
            return False
        name = f"{key.task}/{key.name}"
        return (not self.names or _matches(name, self.names)) and not _matches(name, self.exempt)


@dataclass(frozen=True, slots=True)
class MonitorPolicy:
    """Rules for series, for the sign similarities of two runs, and for the ranks of one."""

    name: str
    rules: tuple[_PolicyRule[Rule], ...]
    sign_rules: tuple[_PolicyRule[SignSimilarity], ...]
    rank_rules: tuple[_PolicyRule[RankDifference], ...] = ()

    def rules_for(self, key: SeriesKey) -> list[_PolicyRule[Rule]]:
        """Return the rules for a series, in the policy's order."""
        return [rule for rule in self.rules if rule.is_for(key)]

    def sign_rules_for(self, key: SeriesKey) -> list[_PolicyRule[SignSimilarity]]:
        """Return the rules for a sign similarity, in the policy's order."""
        return [rule for rule in self.sign_rules if rule.is_for(key)]

    def rank_rule_for(self, key: SeriesKey) -> _PolicyRule[RankDifference] | None:
        """Return the first rule for differences between ranks, None where the policy has none for a series."""
        return next((rule for rule in self.rank_rules if rule.is_for(key)), None)

    def rank_limit(self, key: SeriesKey) -> float | None:
        """Return how far a series may be from those of other ranks, None where that is not judged."""
        rule = self.rank_rule_for(key)
        return None if rule is None else rule.rule.apart


def load_policy(source: str, dtype: str | None = None) -> MonitorPolicy:
    """Load a built-in policy by name, or one from a YAML file.

    ``dtype`` is what training computes in: without it, rules that need one and do not say which are left out. Raises
    RulesError that names file, rule, value and what is allowed.
    """
    path = _BUILT_IN.get(source, Path(source))
    try:
        table = decode_yaml(read_regular(path))
    except FileNotFoundError:
        raise RulesError(f"{unknown('policy', source, sorted(_BUILT_IN))}, and paths of .yaml files") from None
    except OSError as error:
        raise RulesError(f"cannot be read: {error.strerror}", file=path) from None
    except YamlError as error:
        raise RulesError(str(error), file=path) from None
    entries = table.get("rules") if isinstance(table, dict) else None
    if not isinstance(entries, list) or set(table) != {"rules"}:
        raise RulesError("not a policy for monitored runs; expected one key, rules, with a list of rules", file=path)
    read = (_policy_rule(entry, f"{path}: rules[{i}]", dtype) for i, entry in enumerate(entries))
    rules = [rule for rule in read if rule is not None]
    name = source if source in _BUILT_IN else path.stem
    of_signs = tuple(rule for rule in rules if isinstance(rule.rule, SignSimilarity))
    of_ranks = tuple(rule for rule in rules if isinstance(rule.rule, RankDifference))
    of_series = tuple(rule for rule in rules if not isinstance(rule.rule, (SignSimilarity, RankDifference)))
    return MonitorPolicy(name, of_series, of_signs, of_ranks)


def _policy_rule(entry: Any, where: str, dtype: str | None) -> _PolicyRule[Any] | None:
    if not isinstance(entry, dict) or not isinstance(entry.get("rule"), str):
        raise RulesError(
            f"is {shown(entry)}", file=where, remedy=f"expected a mapping with 'rule': {', '.join(_KINDS)}"
        )
    for key in entry:
        if key not in _KEYS:
            raise RulesError(unknown("key", key, _KEYS), file=where)
    limits, outcome = entry.get("limits", {}), entry.get("outcome", "fail")
    if not isinstance(limits, dict):
        raise RulesError(f"limits is {shown(limits)}", file=where, remedy="expected a mapping to numbers")
    if outcome not in ("fail", "warn"):
        raise RulesError(f"outcome is {shown(outcome)}", file=where, remedy="expected fail or warn")
    tasks, statistics, names, exempt = (_words(entry, key, where) for key in _LISTS)
    if entry["rule"] in _NEED_DTYPE and "dtype" not in limits:
        if dtype is None:
            return None
        limits = limits | {"dtype": dtype}
    try:
        rule = make_rule(entry["rule"], limits, _KINDS)
    except ConfigError as error:
        raise RulesError(str(error), file=where) from None
    return _PolicyRule(rule, tasks, statistics, names, exempt, cast("Literal['fail', 'warn']", outcome))


def _words(entry: dict[str, Any], key: str, where: str) -> tuple[str, ...]:
    words = entry.get(key, [])
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise RulesError(f"{key} is {shown(words)}", file=where, remedy="expected a list of texts")
    return tuple(words)


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
