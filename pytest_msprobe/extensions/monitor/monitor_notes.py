"""Notes on a monitored run in the head of the page of its tests."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from pytest_msprobe.journal import Journal
from pytest_msprobe.reports.check_page.rows import AboutRun


def about_run(journal: Journal) -> AboutRun | None:
    """Return what the page says of the tests of a monitored run."""
    return AboutRun(_notes(journal)) if journal.header.settings.get("mode") == "monitor" else None


def _notes(journal: Journal) -> list[str]:
    """Return how to get the page with the curves of a monitored run."""
    folders = {str(Path(file).parent) for file in journal.header.dumps}
    if not folders:
        return []
    command = shlex.join(["pytest", f"--msprobe-monitor={os.path.commonpath(folders)}", "--msprobe-html=curves.html"])
    return [f"These are the tests of a monitored run. The page with its curves: {command}"]
