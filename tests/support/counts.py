"""What a run says of its failures, in the three places that have to agree."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest

from pytest_msprobe.journal import read_journal

_SUMMARY = re.compile(r"^\d+ (?:API record|record|call)s?: (?P<counts>.*)$", re.MULTILINE)


class FailureCounts(NamedTuple):
    """How many items failed for pytest, how many records for the summary, how many lines of the journal."""

    pytest: int
    summary: int
    journal: int


def failure_counts(result: pytest.RunResult, journal: Path) -> FailureCounts:
    """Read them from a finished run that wrote a journal."""
    summary = _SUMMARY.search(result.stdout.str())
    failed = re.search(r"(\d+) (?:failed|wrong)", summary["counts"]) if summary else None
    lines = read_journal(journal).entries.values()
    return FailureCounts(
        pytest=result.parseoutcomes().get("failed", 0),
        summary=int(failed[1]) if failed else 0,
        journal=sum(entry.result.verdict.outcome == "fail" for entry in lines),
    )
