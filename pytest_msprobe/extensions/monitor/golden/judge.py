"""A series judged by that of a golden run, opened with its reruns rank by rank, where both are comparable."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np

from msprobe_hooks.errors import MonitorError
from msprobe_hooks.extensions.monitor.series.paths import TASKS
from msprobe_hooks.extensions.monitor.series.reader import Run, SeriesKey, open_run, rank_folders
from msprobe_standards.verdict import Outcome, Verdict
from pytest_msprobe.errors import OptionError
from pytest_msprobe.extensions.monitor.golden.gradient_signs import TASK, Signs, probed
from pytest_msprobe.extensions.monitor.golden.rank_pair import Compared, Pair
from pytest_msprobe.extensions.monitor.golden.series_tolerance import CONTINUOUS
from pytest_msprobe.extensions.monitor.golden.step_splits import MicroBatches, require_same_start, view
from pytest_msprobe.extensions.monitor.judging import MonitorPolicy, SignSimilarity
from pytest_msprobe.extensions.monitor.series_names import (
    Alarm,
    MonitorSkip,
    Place,
    alarmed,
    item_name,
    places,
    skipped,
    with_spread,
)
from pytest_msprobe.results.result import DirectionResult

#: What reports call leaving the tolerance.
RULE = "golden"

_NEIGHBOURS = 3


class GoldenJudge:
    """Judges the series of one rank by the run ``golden``.

    ``series_keys`` are those of either run, ``keys`` also those that both give together: sign similarities, where both
    hold ``signs``, which keep to the rules of a policy. All are in the order computed. ``notes`` say what is odd about
    the files of both, and where they are not of the same steps, or signs only of one. ``batches`` are the micro batches
    of both where these differ.
    """

    def __init__(
        self,
        target: Run,
        golden: Run,
        pair: Pair,
        signs: Signs | None,
        policy: MonitorPolicy,
        batches: MicroBatches | None = None,
    ) -> None:
        self._batches = batches
        self._rank = target.rank
        self.golden = golden
        self._target_run = target
        self.signs = signs
        self._pair = pair
        self._policy = policy
        self._target, self._golden = {*target.keys}, {*golden.keys}
        self.series_keys: Sequence[SeriesKey] = _merged(golden.keys, target.keys)
        self.keys: Sequence[SeriesKey] = _with_signs(self.series_keys, signs.keys if signs is not None else ())
        self.notes: Sequence[str] = [
            *target.notes,
            *(f"golden run: {note}" for note in golden.notes),
            *([batches.note(self.series_keys)] if batches is not None else []),
            *_other_steps(target, golden),
            *_signs_of_one(target, golden),
        ]

    def judge(self, key: SeriesKey) -> DirectionResult:
        """Return what comes of a series. Raises MonitorError where a file is unusable."""
        if self.signs is not None and key.statistic == SignSimilarity.name:
            return self._judge_signs(self.signs, key)
        if self._depends_on_micro_batches(key):
            return skipped(key, MonitorSkip.OTHER_MICRO_BATCHES)
        if key not in self._target or key not in self._golden:
            return self._alone(key)
        compared = self.compared(key)
        if compared is None:
            return skipped(key, MonitorSkip.JUMPS)
        if not compared.steps.size:
            return skipped(key, MonitorSkip.NO_COMMON_STEP)
        return with_spread(self._by_tolerance(key, compared), self._rank, compared.target)

    def _judge_signs(self, signs: Signs, key: SeriesKey) -> DirectionResult:
        """Return what comes of a sign similarity: what breaks a rule that fails comes before one that warns."""
        rules = self._policy.sign_rules_for(key)
        if not rules:
            return skipped(key, MonitorSkip.NO_RULE)
        if not signs.series(key).steps.size:
            return skipped(key, MonitorSkip.NO_COMMON_STEP)
        if signs.is_rounding(key):
            return skipped(key, MonitorSkip.ROUNDING)
        comparisons = [(rule.outcome, signs.compare(key, rule.rule)) for rule in rules]
        for outcome, compared in sorted(comparisons, key=lambda comparison: comparison[0] == "warn"):
            at = compared.first_over
            if at is not None:
                step, reason = int(compared.steps[at]), _few_signs(compared, at)
                return self._departed(key, step, reason, _story(compared, at), outcome)
        return DirectionResult(item_name(key), _pass(comparisons[0][1]))

    def compared(self, key: SeriesKey) -> Compared | None:
        """Compare a series; None where a run lacks it, or its statistic jumps and has no tolerance."""
        if self.signs is not None and key.statistic == SignSimilarity.name:
            rules = self._policy.sign_rules_for(key)
            return self.signs.compare(key, rules[0].rule) if rules else None
        in_both = key in self._target and key in self._golden and not self._depends_on_micro_batches(key)
        return self._pair.compare(key) if in_both and key.statistic in (*CONTINUOUS, "nans") else None

    def _depends_on_micro_batches(self, key: SeriesKey) -> bool:
        return self._batches is not None and self._batches.depend_on(key)

    def _by_tolerance(self, key: SeriesKey, compared: Compared) -> DirectionResult:
        at = compared.first_over
        if at is not None:
            return self._departed(key, int(compared.steps[at]), _reason(compared, at), _story(compared, at))
        return DirectionResult(item_name(key), _pass(compared))

    def _alone(self, key: SeriesKey) -> DirectionResult:
        """Return what comes of a series of one run: a failure where the other watched its like, and not this one."""
        has, lacks = ("golden", "target") if key in self._golden else ("target", "golden")
        others = self._watched_alike[lacks]
        if (key.task, key.statistic, key.micro_step) not in others:
            return skipped(key, MonitorSkip.WATCHED_BY_ONE)
        reason = f"only the {has} run has it, and the {lacks} run has other {key.task} series: the models differ"
        steps = (self.golden if key in self._golden else self._target_run).read(key).steps
        first = max(self._pair.first_step or 0, int(steps[0]) if steps.size else 0)
        return self._departed(key, first, reason, "")

    @cached_property
    def _watched_alike(self) -> dict[str, set[tuple[str, str, int | None]]]:
        both = {"target": self._target, "golden": self._golden}
        return {name: {(key.task, key.statistic, key.micro_step) for key in keys} for name, keys in both.items()}

    @cached_property
    def _places(self) -> dict[SeriesKey, Place]:
        return places(self.keys)

    def _departed(
        self, key: SeriesKey, step: int, reason: str, around: str, outcome: Outcome = "fail"
    ) -> DirectionResult:
        text = f"{RULE} at step {step}: {key.statistic} {reason}\n\n{around}".rstrip()
        return alarmed(key, self._rank, self._places[key], [Alarm(step, RULE, reason)], outcome, text)


def _with_signs(series: Sequence[SeriesKey], signs: Sequence[SeriesKey]) -> list[SeriesKey]:
    """Return all keys: a sign similarity behind the series of its gradient, else behind those of all gradients."""
    last = {key.watched: key for key in series}
    behind = {last[sign.watched]: sign for sign in signs if sign.watched in last}
    placed = [entry for key in series for entry in (key, behind.get(key)) if entry is not None]
    later = TASKS[TASKS.index(TASK) + 1 :]
    end = next((place for place, key in enumerate(placed) if key.task in later), len(placed))
    return [*placed[:end], *(sign for sign in signs if sign.watched not in last), *placed[end:]]


def _other_steps(target: Run, golden: Run) -> Iterator[str]:
    """Yield how many steps are compared, by the first series of both runs, where these have others."""
    golden_keys = frozenset(golden.keys)
    key = next((key for key in target.keys if key in golden_keys), None)
    if key is not None:
        own, theirs = target.read(key).steps, golden.read(key).steps
        if not np.array_equal(own, theirs):
            yield (
                f"{np.isin(own, theirs).sum()} of the run's {own.size} steps ({own[0]} to {own[-1]}) compared; "
                f"the golden run has {theirs.size} ({theirs[0]} to {theirs[-1]})"
            )


def _signs_of_one(target: Run, golden: Run) -> Iterator[str]:
    """Yield that signs are not compared, where one of the runs has them."""
    has = [name for name, run in (("this", target), ("the golden", golden)) if probed(run) is not None]
    if len(has) == 1:
        yield f"sign similarities not compared: only {has[0]} run has sign maps of a gradient probe"


def _merged(golden: Sequence[SeriesKey], target: Sequence[SeriesKey]) -> list[SeriesKey]:
    """Return the keys of both runs: golden's order, and what only the target has behind what it follows there."""
    golden_keys, after = {*golden}, {}  # type: set[SeriesKey], dict[SeriesKey | None, list[SeriesKey]]
    last: SeriesKey | None = None
    for key in target:
        if key in golden_keys:
            last = key
        else:
            after.setdefault(last, []).append(key)
    return [*after.get(None, []), *(merged for key in golden for merged in (key, *after.get(key, [])))]


def _pass(compared: Compared) -> Verdict:
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = np.where(compared.difference > 0, compared.difference / compared.allowed, 0.0)
    at = int(np.argmax(shares))
    metrics = {"apart": float(compared.difference[at])}
    limits = {"apart": float(compared.allowed[at])}
    return Verdict("pass", RULE, f"{len(compared.steps)} steps", metrics, limits, float(shares[at]))


def _reason(compared: Compared, at: int) -> str:
    target, golden = compared.target[at], compared.golden[at]
    if not math.isfinite(compared.difference[at]):
        return f"is {target:.6g}, golden {golden:.6g}"
    return (
        f"is {target:.6g}, golden {golden:.6g}: relative difference {compared.difference[at]:.1e} exceeds "
        f"limit {compared.allowed[at]:.1e}"
    )


def _few_signs(compared: Compared, at: int) -> str:
    where = "at the first step" if at == 0 else f"after {compared.target[at - 1]:.4f} at the previous step"
    return f"is {compared.target[at]:.4f} {where}, below limit {1 - compared.allowed[at]:.4f}"


def _story(compared: Compared, at: int) -> str:
    return "\n".join(_neighbourhood(compared, at))


def _neighbourhood(compared: Compared, at: int) -> Iterator[str]:
    around = range(max(at - _NEIGHBOURS, 0), min(at + _NEIGHBOURS + 1, len(compared.steps)))
    width = max(4, len(str(compared.steps[around[-1]])))
    yield f"    {'step':>{width}}  {'target':>13}  {'golden':>13}    apart    limit"
    for i in around:
        numbers = f"{compared.target[i]:13.6g}  {compared.golden[i]:13.6g}"
        sizes = f"{compared.difference[i]:7.1e}  {compared.allowed[i]:7.1e}"
        yield f"  {'>' if i == at else ' '} {compared.steps[i]:>{width}}  {numbers}  {sizes}"


def golden_judges(
    targets: Mapping[Path, Run], golden: Path, reruns: Sequence[Path], dtype: str | None, policy: MonitorPolicy
) -> dict[Path, GoldenJudge]:
    """Return a judge per rank of the run under test.

    Raises OptionError where a golden run lacks a rank, has no step in common, or starts from other weights or data;
    MonitorError where its files are unusable.
    """
    goldens = _ranks("--msprobe-golden", golden, targets)
    others = [_ranks("--msprobe-golden-rerun", rerun, targets) for rerun in reruns]
    return {
        path: _judge(target, goldens[path], [runs_by_path[path] for runs_by_path in others], dtype, policy)
        for path, target in targets.items()
    }


def _judge(target: Run, golden: Run, reruns: Sequence[Run], dtype: str | None, policy: MonitorPolicy) -> GoldenJudge:
    batches = require_same_start("--msprobe-monitor", target, golden)
    others = [view(rerun, require_same_start("--msprobe-golden-rerun", rerun, golden)) for rerun in reruns]
    aside = (open_run(target.folder), open_run(golden.folder))
    pair = Pair(view(target, batches), view(golden, batches), others, dtype=dtype, aside=aside)
    return GoldenJudge(target, golden, pair, signs_of(target, golden, reruns, dtype), policy, batches)


def signs_of(target: Run, golden: Run, reruns: Sequence[Run], dtype: str | None) -> Signs | None:
    """Return the sign maps of a pair where both runs have them."""
    ours, theirs, *others = map(probed, (target, golden, *reruns))
    if ours is None or theirs is None:
        return None
    pair = Pair(ours.summaries, theirs.summaries, dtype=dtype)
    return Signs(ours, theirs, [other for other in others if other is not None], pair)


def _ranks(flag: str, folder: Path, targets: Mapping[Path, Run]) -> dict[Path, Run]:
    """Return for each rank of the run under test that of another run; single ranks match whatever their numbers."""
    try:
        runs = [open_run(rank_folder) for rank_folder in rank_folders(folder)]
    except MonitorError as error:
        raise OptionError(f"{flag}: {error}") from None
    if len(runs) == len(targets) == 1:
        return dict.fromkeys(targets, runs[0])
    by_rank = {run.rank: run for run in runs}
    lacking = sorted(str(target.rank) for target in targets.values() if target.rank not in by_rank)
    if lacking:
        raise OptionError(
            f"{flag} {folder}: no rank {', '.join(lacking)}",
            remedy="name a run with these ranks, or judge one rank",
        )
    return {path: by_rank[target.rank] for path, target in targets.items()}
