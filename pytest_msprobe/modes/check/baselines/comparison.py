"""One run judged by another: verdicts from the numbers that both wrote down."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from msprobe_hooks.dump.names import ApiName, parse_api_name
from msprobe_standards import Metrics, Policy, Standard, fitting, judge_recorded
from msprobe_standards.verdict import Outcome, Verdict
from pytest_msprobe.modes.check.baselines.finished_runs import Run, paired
from pytest_msprobe.modes.check.baselines.metrics import baseline_metrics, recorded_output, torch_dtype
from pytest_msprobe.modes.check.baselines.rows import OutputRow, RecordRow
from pytest_msprobe.results.outcomes import Breakdown
from pytest_msprobe.results.result import DirectionResult, OutputResult, as_missing_baseline, decided
from pytest_msprobe.results.skip_reasons import BaseSkipReason

_OUTCOMES: dict[str, Outcome] = {"pass": "pass", "warn": "warn", "fail": "fail", "skip": "skip"}


@dataclass(frozen=True)
class ComparedOutput:
    """One output: its name in a table, its row, what came of it, and the baseline's row, if there is one.

    There is no ``standard`` where the row has no numbers, so that the run's own verdict holds.
    """

    name: str
    row: OutputRow
    result: OutputResult
    standard: Standard | None = None
    baseline: OutputRow | None = None


@dataclass(frozen=True)
class ComparedRecord:
    """One record: what came of it, and of each of its outputs."""

    result: DirectionResult
    outputs: tuple[ComparedOutput, ...] = ()


def compare_runs(target: Run, baseline: Run, policy: Policy) -> Iterator[ComparedRecord]:
    """Judge each record of a run by a policy, with the other run as its baseline.

    Raises ValueError where the policy has no rule for an output.
    """
    for row, other in paired(target, baseline):
        yield _compare(row, other, policy)


def _compare(row: RecordRow, other: RecordRow, policy: Policy) -> ComparedRecord:
    if not row.outputs:
        return ComparedRecord(_as_it_was(row))
    try:
        name = parse_api_name(row.record)
    except ValueError as error:
        return ComparedRecord(_as_it_was(row) if row.outcome == "fail" else _skipped(row.record, str(error)))
    tensors = row.measured

    def compare(index: int, output: OutputRow) -> ComparedOutput:
        position = next((i for i, tensor in enumerate(tensors) if tensor is output), len(tensors))
        baseline = other.output(output.path, position, row.of_table)
        label = f"{row.record}.{output.path if row.of_table else f'output.{index}'}"
        return _compare_output(label, output, baseline, standard_for(name, row, output, policy), other.reason)

    outputs = tuple(compare(index, output) for index, output in enumerate(row.outputs))
    return ComparedRecord(decided(row.record, [output.result for output in outputs]), outputs)


def standard_for(name: ApiName, row: RecordRow, output: OutputRow, policy: Policy) -> Standard:
    """Return what a policy judges an output of the record of this name by, with another run's as its baseline."""
    standard = policy.select(
        name.api,
        output_dtype=torch_dtype(output.dtype),
        input_dtypes=frozenset(dtype for dtype in map(torch_dtype, row.input_dtypes) if dtype is not None),
        backward=name.direction == "backward",
        scalars=row.scalars,
        recorded_baseline=True,
    )
    return fitting(standard, torch_dtype(output.dtype) or torch.float32)


def _compare_output(
    name: str, row: OutputRow, baseline: OutputRow | None, standard: Standard, absence: str
) -> ComparedOutput:
    recorded = recorded_output(row)
    # That NaN and inf elements are right was seen where the tensors were.
    explained = standard.adopts_baseline and row.metrics.get("nonfinite_mismatch") and row.outcome == "pass"
    if recorded is None or explained:
        verdict = Verdict(_OUTCOMES.get(row.outcome, "skip"), row.standard, row.reason)
        return ComparedOutput(name, row, _result(row, verdict))
    missing = ""

    def look_up(wanted: Standard) -> Metrics | None:
        nonlocal missing
        found = baseline_metrics(baseline, wanted, recorded.dtype, row.shape, lambda: recorded.metrics.get("scale"))
        if isinstance(found, Metrics):
            return found
        missing = found if baseline is not None or not absence else f"the recorded run has no numbers: {absence}"
        return None

    judged = judge_recorded(recorded, standard=standard, recorded=look_up)
    if judged is None:
        missing = f"the run has no numbers of standard {standard.name}; make it under the same policy"
    result = _result(row, judged or Verdict("skip", standard.name))
    return ComparedOutput(name, row, as_missing_baseline(result, missing) if missing else result, standard, baseline)


def _result(row: OutputRow, verdict: Verdict) -> OutputResult:
    return OutputResult(row.path, verdict, row.dtype, row.golden_dtype, row.shape)


def _as_it_was(row: RecordRow) -> DirectionResult:
    if row.outcome == "skip" or row.outcome not in _OUTCOMES:
        return _skipped(row.record, row.reason or "the run has no result for it")
    return DirectionResult(row.record, Verdict(_OUTCOMES[row.outcome], "", row.reason), breakdown=Breakdown.RUN)


class ComparisonSkip(BaseSkipReason):
    """Why a record is not compared with the other run."""

    NOT_COMPARED = "not judged in this run, so nothing to compare"


def _skipped(record: str, reason: str) -> DirectionResult:
    return DirectionResult(record, Verdict("skip", "", reason), skip=ComparisonSkip.NOT_COMPARED)
