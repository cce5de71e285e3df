"""The page of a check as one file that needs nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pytest_msprobe.reports.pages.writing import write_page
from pytest_msprobe.reports.verdicts.model import RunFacts
from pytest_msprobe.reports.verdicts.rows import Rows
from pytest_msprobe.results.error_map import BINS, LEVELS, LIMIT_RANK, NOT_FINITE


def write_verdicts_page(path: Path, runs: Sequence[RunFacts], rows: Rows) -> None:
    """Write the page. Raises OSError where the disk refuses."""
    data = {
        "runs": [_run(run) for run in runs],
        **rows.plain(),
        "bins": BINS,
        "levels": {"finite": LEVELS, "limit": LIMIT_RANK, "notFinite": NOT_FINITE},
    }
    write_page(path, __package__, data, title="Check", parts=("plot", "table"))


def _run(run: RunFacts) -> dict[str, Any]:
    starts = dict.fromkeys((start.place, start.description, start.modes_in_words) for start in run.starts)
    return {
        "name": run.name,
        "began": run.began,
        "devices": list(dict.fromkeys(description for _, description, _ in starts)),
        "modes": list(dict.fromkeys(modes for *_, modes in starts)),
        "settings": dict(run.settings),
    }
