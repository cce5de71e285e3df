"""A finished run as rows, whichever file it is read from: a baseline, a journal or msprobe's details table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from msprobe_hooks.regular_files import open_regular
from pytest_msprobe.errors import BaselineError, JournalError
from pytest_msprobe.journal.journal import read_journal
from pytest_msprobe.modes.check.baselines.baseline_file import Baseline, made_on, read_baseline
from pytest_msprobe.modes.check.baselines.details_table import read_details
from pytest_msprobe.modes.check.baselines.tensor_folder import RecordRow, record_row


@dataclass(frozen=True)
class Run:
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


def read_run(path: Path) -> Run:
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
        run = Run(path, read_details(path), {})
    if not any(output.metrics for row in run.rows for output in row.outputs):
        raise BaselineError(
            f"{path}: no numbers to compare; pass a file written by --msprobe-save-baseline, an "
            "accuracy_checking_details table, or the journal of a run that wrote one of these as well"
        )
    return run


def require_comparable(target: Run, baseline: Run) -> None:
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


def paired(target: Run, baseline: Run) -> Iterator[tuple[RecordRow, RecordRow]]:
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


def _of_baseline(baseline: Baseline) -> Run:
    header = baseline.header
    assert header is not None
    rows = [baseline.row(dump, record) for dump, record in baseline.rows]
    inputs = {"seed": str(header.seed), "real_data": header.real_data}
    return Run(baseline.path, rows, inputs, made_on(header.starts), header.policy, header.level)


def _of_journal(path: Path) -> Run:
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
    return Run(path, rows, inputs, made_on(journal.starts), settings.get("policy", ""), settings.get("level", ""))
