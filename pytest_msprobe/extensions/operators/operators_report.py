"""``pytest-msprobe report --operators``: which operators are right, by dtype, and what changed between two runs."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from msprobe_hooks.dump.names import parse_api_name
from pytest_msprobe.commands.report import refuse, show, written
from pytest_msprobe.errors import CommandError
from pytest_msprobe.extensions.operators.sweep import DTYPES, Sweep, dtype_of_path, read_sweep
from pytest_msprobe.journal import Entry
from pytest_msprobe.journal.shards import WholeRun
from pytest_msprobe.reports.text import clipped, code_span
from pytest_msprobe.results.outcomes import SkipReason

_STANDARD_OUTPUT = "-"
_WHY_LENGTH = 160

WRONG, RIGHT, NOT_IMPLEMENTED, NOT_JUDGED = "wrong", "right", "not implemented", "not judged"
_COLUMNS = ("passed", "failed", NOT_IMPLEMENTED, "skipped")


class Case(NamedTuple):
    """An operator in a dtype."""

    operator: str
    dtype: str


@dataclass(slots=True)
class Counts:
    """Records by what came of them, and why of those that did not pass."""

    passed: int = 0
    failed: int = 0
    missing: int = 0
    skipped: int = 0
    reasons: Counter[str] = field(default_factory=Counter)

    def add(self, entry: Entry) -> None:
        """Count one more record; one that the device does not implement is neither passed nor failed."""
        result = entry.result
        if entry.outcome == "skip":
            is_missing = result.skip == SkipReason.UNSUPPORTED.value
            self.missing += is_missing
            self.skipped += not is_missing
            self.reasons[result.skip or result.reason] += 1
            return
        is_right = entry.outcome in ("pass", "warn")
        self.passed += is_right
        self.failed += not is_right
        if entry.outcome != "pass":
            self.reasons[f"{entry.outcome}: {result.reason}"] += 1

    def merge(self, other: Counts) -> None:
        """Add the counts of other records."""
        self.passed += other.passed
        self.failed += other.failed
        self.missing += other.missing
        self.skipped += other.skipped
        self.reasons += other.reasons

    @property
    def status(self) -> str:
        """The word for all of them: one wrong record is enough, and so is one that is not implemented."""
        if self.failed:
            return WRONG
        if self.missing:
            return NOT_IMPLEMENTED
        return RIGHT if self.passed else NOT_JUDGED

    @property
    def cells(self) -> list[str]:
        """The numbers of the columns, empty for none."""
        return [str(count or "") for count in (self.passed, self.failed, self.missing, self.skipped)]

    @property
    def why(self) -> str:
        """The most frequent reason, and how many others there are."""
        if not self.reasons:
            return ""
        reason = self.reasons.most_common(1)[0][0]
        others = len(self.reasons) - 1
        return code_span(clipped(reason, _WHY_LENGTH)) + (f" and {others} more" if others else "")


def cases_of(run: WholeRun) -> dict[Case, Counts]:
    """Return the counts of each operator in each dtype."""
    cases: dict[Case, Counts] = {}
    for entry in run.journal.entries.values():
        cases.setdefault(_case(entry), Counts()).add(entry)
    return cases


def _case(entry: Entry) -> Case:
    """Return the operator and the dtype of a record: that which its dump is of, else that of its first result."""
    try:
        operator = parse_api_name(entry.result.record).qualified_api
    except ValueError:
        operator = entry.result.record
    first = next((output.target_dtype for output in entry.result.outputs if output.target_dtype), "")
    return Case(operator, dtype_of_path(entry.id) or first.removeprefix("torch.") or "-")


def operators_table(run: WholeRun) -> str:
    """Return the Markdown of one run: counts by dtype, a row for each operator, and what was not recorded."""
    cases = cases_of(run)
    by_operator = _merged(cases, lambda case: case.operator)
    by_dtype = _merged(cases, lambda case: case.dtype)
    in_dtype, dtypes = Counter(case.dtype for case in cases), dict[str, list[str]]()
    for case in sorted(cases, key=lambda case: _place(case.dtype)):
        dtypes.setdefault(case.operator, []).append(case.dtype)
    statuses = Counter(counts.status for counts in by_operator.values())
    words = ", ".join(f"{statuses[word]} {word}" for word in (RIGHT, WRONG, NOT_IMPLEMENTED, NOT_JUDGED))
    of_dtypes = ([dtype, str(in_dtype[dtype]), *by_dtype[dtype].cells] for dtype in sorted(by_dtype, key=_place))
    of_operators = (
        [code_span(name), " ".join(dtypes[name]), *counts.cells, counts.why]
        for name, counts in sorted(by_operator.items(), key=_worst_first)
    )
    sections = [
        f"## Operators on {_device(run)}: {words}",
        _table(["dtype", "operators", *_COLUMNS], of_dtypes),
        _table(["operator", "dtypes", *_COLUMNS, "why"], of_operators),
        _not_recorded(run),
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def operators_difference(before: WholeRun, after: WholeRun) -> str:
    """Return the Markdown of two runs: the operators and dtypes that came to something else, wrong ones first."""
    first, second = cases_of(before), cases_of(after)
    changed = dict[tuple[str, str], list[Case]]()
    for case in dict.fromkeys([*first, *second]):
        statuses = tuple(cases[case].status if case in cases else "not in the run" for cases in (first, second))
        changed.setdefault((statuses[0], statuses[1]), []).append(case)
    alike = sum(len(cases) for (was, now), cases in changed.items() if was == now)
    worse = sum(len(cases) for (was, now), cases in changed.items() if now == WRONG != was)
    rows = (
        [code_span(case.operator), case.dtype, was, now, (second if now == WRONG else first).get(case, Counts()).why]
        for (was, now), cases in sorted(changed.items(), key=lambda one: (one[0][1] != WRONG, one[0][0] != WRONG))
        for case in sorted(cases)
        if was != now
    )
    sections = [
        f"## Operators on {_device(before)}, then on {_device(after)}: {worse} became wrong",
        f"{alike} of {len({*first, *second})} operators and dtypes came to the same.",
        _table(["operator", "dtype", "before", "after", "why"], rows),
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def _merged(cases: Mapping[Case, Counts], key: Callable[[Case], str]) -> dict[str, Counts]:
    merged: dict[str, Counts] = {}
    for case, counts in cases.items():
        merged.setdefault(key(case), Counts()).merge(counts)
    return merged


def _worst_first(row: tuple[str, Counts]) -> tuple[bool, bool, bool, str]:
    name, counts = row
    return not counts.failed, not counts.missing, not counts.skipped, name


def _place(dtype: str) -> tuple[int, str]:
    return DTYPES.index(dtype) if dtype in DTYPES else len(DTYPES), dtype


def _device(run: WholeRun) -> str:
    names = dict.fromkeys(start.description for start in run.journal.starts)
    return code_span(", ".join(names)) if names else "an unknown device"


def _not_recorded(run: WholeRun) -> str:
    """Return a table of the operators that no record is of, by what says so next to the dumps; empty without that."""
    reasons: dict[Case, str] = {}
    for sweep in _sweeps(run):
        reasons |= {Case(name, sweep.dtype): why for name, why in sweep.left_out()}
    dtypes: dict[tuple[str, str], list[str]] = {}
    for case, why in reasons.items():
        dtypes.setdefault((case.operator, why), []).append(case.dtype)
    rows = (
        [code_span(name), " ".join(sorted(of, key=_place)), code_span(clipped(why, _WHY_LENGTH))]
        for (name, why), of in sorted(dtypes.items())
    )
    table = _table(["operator of the database", "dtypes", "why"], rows)
    return f"### Without a record, so that nothing was judged\n\n{table}" if table else ""


def _sweeps(run: WholeRun) -> Iterator[Sweep]:
    for dump in run.journal.header.dumps:
        sweep = read_sweep(Path(dump))
        if sweep is not None:
            yield sweep


def _table(title: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(cells)} |" for cells in rows]
    return "\n".join([f"| {' | '.join(title)} |", "| --- " * len(title) + "|", *lines]) if lines else ""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add ``--operators``."""
    parser.add_argument(
        "--operators",
        action="store_true",
        help="write a table of operators: dtypes, passed, failed, not implemented and skipped with the reason; of the "
        "journals of two runs, which operators came to something else",
    )


def report_runs(arguments: argparse.Namespace, runs: Sequence[WholeRun]) -> bool:
    """Write the table where it is asked for, and return whether it was. Raises CommandError for three runs or more."""
    if not arguments.operators:
        return False
    others = ("junit", "github", "history", "csv", "html")
    refuse(arguments, others, "does not work with --operators", "remove one of them")
    if len(runs) > 2:
        raise CommandError(f"--operators compares two runs, and these are {len(runs)}", remedy="pass two journals")
    text = operators_table(runs[0]) if len(runs) == 1 else operators_difference(*runs)
    if arguments.markdown in (None, _STANDARD_OUTPUT):
        show(text)
    else:
        with written(Path(arguments.markdown)) as part:
            part.write_text(text, encoding="utf-8")
    return True
