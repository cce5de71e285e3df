"""The standards for monitored training: rules in YAML, read and checked here, each with the series that it is for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, ClassVar, Generic, Literal, TypeVar, cast

import msgspec

from msprobe_hooks.errors import ConfigError
from msprobe_hooks.extensions.monitor.rules import RULES, Rule, make_rule
from msprobe_hooks.extensions.monitor.series.reader import SeriesKey
from msprobe_hooks.regular_files import read_regular
from msprobe_standards.decoding import YamlError, decode_yaml
from msprobe_standards.validation import shown
from pytest_msprobe.errors import RulesError
from pytest_msprobe.messages import unknown

Share = Annotated[float, msgspec.Meta(ge=0, le=1)]


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


# Users type the names that the policies for checks have too; a file's name says which kind of run it is for.
_BUILT_IN = {
    file.stem.removeprefix("monitor-"): file for file in (Path(__file__).parent / "policies").glob("monitor-*.yaml")
}
_LISTS = ("tasks", "statistics", "names", "except")
_KEYS = ("rule", "limits", *_LISTS, "outcome")
_NEED_DTYPE = ("overflow", "underflow")
_KINDS: Mapping[str, type[Any]] = {
    **RULES,
    SignSimilarity.name: SignSimilarity,
    RankDifference.name: RankDifference,
}

AnyRule = TypeVar("AnyRule", covariant=True)


@dataclass(frozen=True, slots=True)
class PolicyRule(Generic[AnyRule]):
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
    rules: tuple[PolicyRule[Rule], ...]
    sign_rules: tuple[PolicyRule[SignSimilarity], ...]
    rank_rules: tuple[PolicyRule[RankDifference], ...] = ()

    def rules_for(self, key: SeriesKey) -> list[PolicyRule[Rule]]:
        """Return the rules for a series, in the policy's order."""
        return [rule for rule in self.rules if rule.is_for(key)]

    def sign_rules_for(self, key: SeriesKey) -> list[PolicyRule[SignSimilarity]]:
        """Return the rules for a sign similarity, in the policy's order."""
        return [rule for rule in self.sign_rules if rule.is_for(key)]

    def rank_rule_for(self, key: SeriesKey) -> PolicyRule[RankDifference] | None:
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


def _policy_rule(entry: Any, where: str, dtype: str | None) -> PolicyRule[Any] | None:
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
    return PolicyRule(rule, tasks, statistics, names, exempt, cast("Literal['fail', 'warn']", outcome))


def _words(entry: dict[str, Any], key: str, where: str) -> tuple[str, ...]:
    words = entry.get(key, [])
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise RulesError(f"{key} is {shown(words)}", file=where, remedy="expected a list of texts")
    return tuple(words)


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
