"""Reports that could not be written: a run that lost one does not end as if it had them all."""

from __future__ import annotations

from pathlib import Path

import pytest


def cannot_be_written(path: Path, error: OSError) -> str:
    """Return the line that says so."""
    return f"{path}: cannot be written: {error.strerror or error}"


def end_as_incomplete(session: pytest.Session) -> None:
    """End a run that found nothing wrong with another status than that."""
    if session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        session.exitstatus = pytest.ExitCode.INTERNAL_ERROR
