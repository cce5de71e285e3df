"""The page of two environments: facts that differ, errors first, with both values."""

from __future__ import annotations

from pathlib import Path

import pytest

from msprobe_hooks.messages import counted
from pytest_msprobe.extensions.environment.items import named_pairs
from pytest_msprobe.extensions.environment.judging import value_text
from pytest_msprobe.extensions.environment.opening import Opened
from pytest_msprobe.reports.differences_page.html import Compared, Differences, write_differences_page
from pytest_msprobe.reports.page_report import Results
from pytest_msprobe.run.collection import dump_of_id, dumps_key


def write_environment_page(path: Path, results: Results, *, config: pytest.Config, opened: Opened, golden: str) -> None:
    """Write the page of what came of all facts. Raises OSError where the disk refuses."""
    found = {(dump_of_id(config, item), result.record): result for item, result in results.items()}
    rows: list[Compared] = []
    files = [*config.stash[dumps_key]]
    for file in files:
        # The same fact of each rank is a row of its own.
        rank = f"{file.stem}/" if len(files) > 1 else ""
        for name, pair in named_pairs(opened.named(file)):
            result = found.get((file, name))
            if result is None:
                continue
            why, _, more = result.verdict.reason.partition("\n")
            target, golden_value = ("" if value is None else value_text(value) for value in (pair.target, pair.golden))
            shown = "" if result.outcome == "pass" else why
            details = (("Called at", more),) if more else ()
            rows.append(
                Compared(f"{rank}{name}", pair.section, result.outcome, shown, target, golden_value, details=details)
            )
    differing = sum(row.outcome in ("fail", "warn") for row in rows)
    page = Differences(
        title=f"{differing} of {counted(len(rows), 'fact')} differ",
        about=f"training environment, compared with {golden}",
        noun="fact",
        rows=rows,
        notes=opened.notes,
    )
    write_differences_page(path, page, title="Environment")
