"""The trend as ``trend.csv``: a row for each API, two columns for each run."""

from __future__ import annotations

import csv
import math
from pathlib import Path

from pytest_msprobe.reports.csv import as_text
from pytest_msprobe.reports.trend.margins import ApiTrend, Trend

FILE_NAME = "trend.csv"


def write_trend_csv(path: Path, trend: Trend) -> None:
    """Write the table; of a run that judged nothing of an API both cells are empty. Raises OSError."""
    with path.open("w", encoding="utf-8", newline="", errors="backslashreplace") as file:
        writer = csv.writer(file)
        runs = [f"{run.began:%Y-%m-%d %H:%M} {run.name}" for run in trend.runs]
        titles = [as_text(f"{run} {what}") for run in runs for what in ("margin", "outcome")]
        writer.writerow(["api", "change", "factor", "record", *titles])
        writer.writerows(_row(api) for api in trend.apis)


def _row(api: ApiTrend) -> list[str | float]:
    cells: list[str | float] = []
    for worst in api.worst:
        cells += ["", ""] if worst is None else [worst.margin, worst.outcome]
    factor = "" if math.isnan(api.factor) else api.factor
    record = "" if api.last is None else as_text(api.last.record)
    return [as_text(api.name), api.change, factor, record, *cells]
