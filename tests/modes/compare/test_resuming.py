"""Comparisons that are gone on with: their journals, and what the tables then lack."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

Compare = Callable[..., pytest.RunResult]


def test_a_journal_is_written_and_resumed(compare: Compare, three: tuple[Path, Path], tmp_path: Path) -> None:
    journal = str(tmp_path / "run.jsonl")
    compare(*three, "--msprobe-journal", journal).assert_outcomes(passed=1, failed=2)
    compare(*three, "--msprobe-resume", journal).assert_outcomes(deselected=3)
    compare(*three, "--msprobe-resume", journal, "--msprobe-rerun=fail").assert_outcomes(failed=2, deselected=1)


def test_the_table_of_a_resumed_comparison_says_what_it_lacks(
    compare: Compare, three: tuple[Path, Path], tmp_path: Path
) -> None:
    journal = str(tmp_path / "run.jsonl")
    compare(*three, "-k", "relu", "--msprobe-journal", journal).assert_outcomes(passed=1, deselected=2)
    result = compare(*three, "--msprobe-resume", journal, "--msprobe-csv", str(tmp_path / "out"))
    result.stdout.fnmatch_lines(["msprobe report: *.csv (without the 1 call finished before this run)"])


def test_a_journal_of_another_golden_run_is_refused(compare: Compare, three: tuple[Path, Path], tmp_path: Path) -> None:
    journal = str(tmp_path / "run.jsonl")
    compare(*three, "--msprobe-journal", journal)
    three[1].write_text(three[1].read_text() + " ")
    result = compare(*three, "--msprobe-resume", journal)
    result.stderr.fnmatch_lines(["*was made from other dumps*"])
