"""The golden run's ranks, and its reruns', next to those of the run under test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from msprobe_hooks.errors import MonitorError
from msprobe_hooks.extensions.monitor.series.reader import Run, open_run, rank_folders
from pytest_msprobe.errors import OptionError
from pytest_msprobe.extensions.monitor.golden.gradient_signs import Signs, probed
from pytest_msprobe.extensions.monitor.golden.judge import GoldenJudge
from pytest_msprobe.extensions.monitor.golden.preconditions import other_start
from pytest_msprobe.extensions.monitor.golden.rank_pair import Pair
from pytest_msprobe.extensions.monitor.golden.step_splits import MicroBatches, other_micro_batches, view
from pytest_msprobe.extensions.monitor.policy import MonitorPolicy


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
        path: _judge(target, goldens[path], [each[path] for each in others], dtype, policy)
        for path, target in targets.items()
    }


def _judge(target: Run, golden: Run, reruns: Sequence[Run], dtype: str | None, policy: MonitorPolicy) -> GoldenJudge:
    batches = _require_same_start("--msprobe-monitor", target, golden)
    others = [view(rerun, _require_same_start("--msprobe-golden-rerun", rerun, golden)) for rerun in reruns]
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


def _require_same_start(flag: str, run: Run, golden: Run) -> MicroBatches | None:
    """Return the micro batches of both where these differ. Raises OptionError where the runs cannot be compared."""
    batches = other_micro_batches(run, golden)
    pair = Pair(view(run, batches), view(golden, batches))
    if batches is not None and not pair.tensors:
        raise OptionError(
            f"{flag} {run.folder}: cannot be compared with {golden.folder}: {batches.words}, "
            "and only activations are monitored, which depend on them",
            remedy="monitor gradients or parameters, or use the same micro batches in both runs",
        )
    if pair.first_step is None:
        raise OptionError(
            f"{flag} {run.folder}: no tensor has a step in common with the golden run {golden.folder}",
            remedy="monitor both runs at the same steps",
        )
    problem = other_start(pair.tensors, pair.read) if pair.starts_together else None
    if problem is not None:
        also = "" if batches is None else f"; {batches.words}, so each loss must count by its share of the step"
        raise OptionError(
            f"{flag} {run.folder}: cannot be compared with {golden.folder}: {problem}{also}",
            remedy="use the same seed and data in both runs",
        )
    return batches


def _ranks(flag: str, folder: Path, targets: Mapping[Path, Run]) -> dict[Path, Run]:
    """Return for each rank of the run under test that of another run; single ranks match whatever their numbers."""
    try:
        runs = [open_run(each) for each in rank_folders(folder)]
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
