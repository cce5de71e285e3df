"""A comparison on the terminal: what is wrong first, then the counts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msprobe_standards import Policy
from pytest_msprobe.modes.check.baselines.comparison import ComparedRecord
from pytest_msprobe.modes.check.baselines.finished_runs import Run
from pytest_msprobe.reports.summary import Summary
from pytest_msprobe.results.result import to_plain

_WORDS = {"fail": "FAILED", "warn": "WARNED"}


def report_lines(target: Run, baseline: Run, policy: Policy, records: Sequence[ComparedRecord]) -> list[str]:
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


def _described(run: Run) -> str:
    inputs = ", ".join(f"{name} {value}" for name, value in run.inputs.items())
    return ", ".join(part for part in (f"{run.path}: {len(run.rows)} records", inputs, run.made_on) if part)


def _printable(line: str) -> str:
    """Return a line without what steers a terminal: names and reasons come from files of others."""
    return "".join(character if character.isprintable() else " " for character in line).rstrip()
