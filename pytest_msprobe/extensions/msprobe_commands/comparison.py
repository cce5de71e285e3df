"""One finished run judged by another, whichever files they are read from: policy and verdicts from their numbers."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import torch

from msprobe_hooks.dump.names import ApiName, parse_api_name
from msprobe_hooks.regular_files import open_regular
from msprobe_standards import Metrics, Policy, Standard, built_in_policies, fitting, judge_recorded
from msprobe_standards.verdict import Outcome, Verdict
from pytest_msprobe.errors import BaselineError, JournalError
from pytest_msprobe.journal import read_journal
from pytest_msprobe.modes.check.baselines.baseline_file import Baseline, made_on, read_baseline
from pytest_msprobe.modes.check.baselines.details_table import read_details
from pytest_msprobe.modes.check.baselines.recorded_result import baseline_metrics, recorded_output, torch_dtype
from pytest_msprobe.modes.check.baselines.tensor_folder import OutputRow, RecordRow, record_row
from pytest_msprobe.reports.summary import Summary
from pytest_msprobe.results.outcomes import BaseSkipReason, Breakdown
from pytest_msprobe.results.result import DirectionResult, OutputResult, as_missing_baseline, decided, to_plain
from pytest_msprobe.run.options import BY_API, Level

_OUTCOMES: dict[str, Outcome] = {"pass": "pass", "warn": "warn", "fail": "fail", "skip": "skip"}

# A table does not name its policy; only these read nothing but what is in its columns.
_OF_TABLES = ("msprobe-1.2", "msprobe-26")

_WORDS = {"fail": "FAILED", "warn": "WARNED"}


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


def compare_runs(target: _Run, baseline: _Run, policy: Policy) -> Iterator[ComparedRecord]:
    """Judge each record of a run by a policy, with the other run as its baseline.

    Raises ValueError where the policy has no rule for an output.
    """
    for row, other in _paired(target, baseline):
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

    def look_up(by: Standard) -> Metrics | None:
        nonlocal missing
        metrics = baseline_metrics(baseline, by, recorded.dtype, row.shape, lambda: recorded.metrics.get("scale"))
        if isinstance(metrics, Metrics):
            return metrics
        missing = metrics if baseline is not None or not absence else f"the recorded run has no numbers: {absence}"
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
    """Reason why a record is not compared with the other run."""

    NOT_COMPARED = "not judged in this run, so nothing to compare"


def _skipped(record: str, reason: str) -> DirectionResult:
    return DirectionResult(record, Verdict("skip", "", reason), skip=ComparisonSkip.NOT_COMPARED)


def policy_of(target: _Run, baseline: _Run) -> str:
    """Return the name of the built-in policy that both runs were made under.

    Raises BaselineError where they do not name it, or name different ones.
    """
    of_target, of_baseline = _policies(target), _policies(baseline)
    both = [name for name in of_target if name in of_baseline]
    if not both:
        raise BaselineError(
            f"was made under the policy {' or '.join(of_baseline)}, {target.path} under {' or '.join(of_target)}",
            file=baseline.path,
            remedy="pass --policy",
        )
    if len(both) > 1:
        raise BaselineError(
            f"fits both policies {' and '.join(both)}", file=target.path, remedy="pass --policy with one of them"
        )
    if both[0] not in built_in_policies():
        raise BaselineError("was made under a policy of your own", file=target.path, remedy="pass its file as --policy")
    return both[0]


def level_of(target: _Run, baseline: _Run) -> Level | None:
    """Return the policy's level that both runs were made at, None where each API had its own.

    Raises BaselineError where they name different ones.
    """
    if target.level and baseline.level and target.level != baseline.level:
        raise BaselineError(
            f"was made at the level {baseline.level}, {target.path} at {target.level}",
            file=baseline.path,
            remedy="pass --policy, and --level for one level of all",
        )
    level = target.level or baseline.level
    return None if level in ("", BY_API) else cast("Level", level)


def _policies(run: _Run) -> Collection[str]:
    """Return what a run was made under; of a table all that find as many of their numbers in it."""
    if not run.is_table:
        return (run.policy,)
    lacking = {name: _lacking(run, Policy.load(name)) for name in _OF_TABLES}
    return [name for name, count in lacking.items() if count == min(lacking.values())]


def _lacking(run: _Run, policy: Policy) -> int:
    """Count the outputs of which a run has numbers, but not those that the policy reads."""
    lacking = 0
    for row in run.rows:
        with suppress(ValueError):  # the name of no API, which is not judged
            name = parse_api_name(row.record)
            for output in row.outputs:
                recorded = recorded_output(output)
                if recorded is not None:
                    lacking += recorded.metrics_for(standard_for(name, row, output, policy)) is None
    return lacking


def report_lines(target: _Run, baseline: _Run, policy: Policy, records: Sequence[ComparedRecord]) -> list[str]:
    """Return the lines: failing records with their outputs, warned ones, the runs and policy, the summary."""
    lines: list[str] = []
    for outcome in _WORDS:
        for record in records:
            if record.result.verdict.outcome == outcome:
                lines += _record_lines(record, _WORDS[outcome])
    summary = Summary(module_records=0)
    for record in records:
        summary.add(to_plain(record.result))
    runs = [f"{name} {_described(run)}" for name, run in (("judged:  ", target), ("baseline:", baseline))]
    judged_by = f"policy:   {policy.name}{f', level {policy.level}' if policy.level else ''}"
    return [_printable(line) for line in [*lines, *runs, judged_by, *summary.lines()]]


def _record_lines(record: ComparedRecord, word: str) -> Iterator[str]:
    yield f"{word} {record.result.record}"
    wrong = [output for output in record.result.outputs if output.verdict.outcome in _WORDS]
    for output in wrong:
        what = f"{output.path} {output.target_dtype} {output.shape}"
        yield f"  {what}: {output.verdict.standard}: {output.verdict.reason}"
    if not wrong:
        yield f"  {record.result.verdict.reason}"


def _described(run: _Run) -> str:
    inputs = ", ".join(f"{name} {value}" for name, value in run.inputs.items())
    return ", ".join(part for part in (f"{run.path}: {len(run.rows)} records", inputs, run.made_on) if part)


def _printable(line: str) -> str:
    """Return a line without what steers a terminal: names and reasons come from files of others."""
    return "".join(character if character.isprintable() else " " for character in line).rstrip()


@dataclass(frozen=True)
class _Run:
    """Measurements of one run, in its order.

    ``inputs`` says by name what chose its inputs, ``policy`` and ``level`` what judged them; a table does not say.
    """

    path: Path
    rows: Sequence[RecordRow]
    inputs: dict[str, str]
    made_on: str = ""
    policy: str = ""
    level: str = ""

    @property
    def is_table(self) -> bool:
        """Return whether this is a table of msprobe, in which dumps have no fingerprint."""
        return any(row.of_table for row in self.rows)


def read_run(path: Path) -> _Run:
    """Read a run. Raises BaselineError where the file is none, is damaged, or holds no numbers."""
    try:
        with open_regular(path) as file:
            first = file.readline(1 << 20)
    except OSError as error:
        raise BaselineError(f"cannot be read: {error.strerror}", file=path) from None
    if b'"msprobe_journal"' in first:
        run = _of_journal(path)
    elif first.startswith(b"{"):
        run = _of_baseline(read_baseline(path))
    else:
        run = _Run(path, read_details(path), {})
    if not any(output.metrics for row in run.rows for output in row.outputs):
        raise BaselineError(
            f"{path}: no numbers to compare; pass a file written by --msprobe-save-baseline, an "
            "accuracy_checking_details table, or the journal of a run that wrote one of these as well"
        )
    return run


def require_comparable(target: _Run, baseline: _Run) -> None:
    """Raise BaselineError where two runs had other inputs, or where nothing of one is in the other."""
    for name, value in target.inputs.items():
        other = baseline.inputs.get(name, value)
        if value != other:
            raise BaselineError(
                f"{target.path} was made with {name} {value}, {baseline.path} with {other}, so their inputs differ; "
                "make both with the same"
            )
    by_dump = not (target.is_table or baseline.is_table)
    keys = {row.dump for row in baseline.rows} if by_dump else {row.record for row in baseline.rows}
    if keys.isdisjoint(row.dump if by_dump else row.record for row in target.rows):
        raise BaselineError(f"no record of {target.path}", file=baseline.path, remedy="compare runs of the same dumps")


def _paired(target: _Run, baseline: _Run) -> Iterator[tuple[RecordRow, RecordRow]]:
    """Yield each row with the baseline's row of the same record, which has no outputs where there is none.

    Raises BaselineError where a table leaves open which of several dumps a record belongs to.
    """
    by_dump = not (target.is_table or baseline.is_table)
    rows: dict[tuple[str, str], RecordRow] = {}
    for row in baseline.rows:
        key = (row.dump if by_dump else "", row.record)
        if key in rows:
            raise BaselineError(
                f"{row.record!r} occurs twice", file=baseline.path, remedy="compare tables of one dump only"
            )
        rows[key] = row
    for row in target.rows:
        yield row, rows.get((row.dump if by_dump else "", row.record), RecordRow(row.record, of_table=row.of_table))


def _of_baseline(baseline: Baseline) -> _Run:
    header = baseline.header
    assert header is not None
    rows = [baseline.row(dump, record) for dump, record in baseline.rows]
    inputs = {"seed": str(header.seed), "real_data": header.real_data}
    return _Run(baseline.path, rows, inputs, made_on(header.starts), header.policy, header.level)


def _of_journal(path: Path) -> _Run:
    try:
        journal = read_journal(path)
    except JournalError as error:
        raise BaselineError(str(error)) from None
    settings = journal.header.settings
    if "explore" in settings:
        raise BaselineError(
            f"{path}: made with --msprobe-explore, so its numbers may be of other than the recorded "
            "inputs; run it without"
        )
    rows = [
        record_row(entry.result, journal.header.dumps.get(str(journal.dump_of(entry)), ""))
        for entry in journal.entries.values()
        if not entry.command
    ]
    inputs: dict[str, str] = {name: settings[name] for name in ("seed", "real_data") if name in settings}
    return _Run(path, rows, inputs, made_on(journal.starts), settings.get("policy", ""), settings.get("level", ""))
