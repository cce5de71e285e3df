"""The reporters of a comparison with an engine: summary, JSON, tables and page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from msprobe_hooks.messages import counted
from pytest_msprobe.extensions.inference.inference_json import InferenceJson
from pytest_msprobe.extensions.inference.inference_summary import InferenceSummary
from pytest_msprobe.modes.compare.reports.table_columns import columns
from pytest_msprobe.modes.compare.rows import ComparedCalls
from pytest_msprobe.reports.pages.write_page import page_number
from pytest_msprobe.reports.text import one_line
from pytest_msprobe.reports.write_errors import cannot_be_written, end_as_incomplete
from pytest_msprobe.storage.atomic_write import atomic_write

if TYPE_CHECKING:
    from pytest_msprobe.extensions.inference.inference_pair import InferencePair
    from pytest_msprobe.modes.compare.options import CompareOptions
    from pytest_msprobe.run.options import Options


def inference_reporters(
    pair: InferencePair, calls: ComparedCalls, compare: CompareOptions, options: Options
) -> Mapping[str, object]:
    """Return the plugins that hear of every item, by name."""
    summary = InferenceSummary(pair, calls)
    reporters: dict[str, object] = {"msprobe-compared-calls": calls, "msprobe-compare-summary": summary}
    if compare.inference.json is not None:
        reporters["msprobe-inference-json"] = InferenceJson(compare.inference.json, pair, calls)
    if options.csv or compare.xlsx or compare.html:
        files = {}
        name = f"compare_result_{datetime.now():%Y%m%d%H%M%S}"
        if options.csv:
            files[options.csv / f"{name}.csv"] = partial(_write_csv, calls=calls, policy=options.policy)
        if compare.xlsx:
            files[compare.xlsx / f"{name}.xlsx"] = partial(_write_xlsx, calls=calls, policy=options.policy)
        if compare.html:
            files[compare.html] = partial(_write_page, calls=calls, pair=pair, summary=summary)
        reporters["msprobe-compare-reports"] = InferenceFiles(files)
    return reporters


class InferenceFiles:
    """Writes tables and page when all items have finished."""

    def __init__(self, files: Mapping[Path, Callable[[Path], object]]) -> None:
        self._files = files
        self._lines: list[tuple[str, bool]] = []

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the files; what cannot be written is said in the summary, and the others are written."""
        if session.config.option.collectonly:
            return
        for path, write in self._files.items():
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                with atomic_write(path) as part:
                    write(part)
            except OSError as error:
                self._lines.append((f"ERROR: msprobe report: {cannot_be_written(path, error)}", True))
                end_as_incomplete(session)
            else:
                self._lines.append((f"msprobe report: {path}", False))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say where the files are."""
        for line, is_problem in self._lines:
            terminalreporter.line(one_line(line), red=is_problem)


def _write_csv(path: Path, *, calls: ComparedCalls, policy: str) -> None:
    from pytest_msprobe.modes.compare.reports.csv import write_csv

    write_csv(path, calls, columns("tensor", policy, with_stack=False))


def _write_xlsx(path: Path, *, calls: ComparedCalls, policy: str) -> None:
    from pytest_msprobe.modes.compare.reports.xlsx import write_xlsx

    write_xlsx(path, calls, columns("tensor", policy, with_stack=False))


def _write_page(path: Path, *, calls: ComparedCalls, pair: InferencePair, summary: InferenceSummary) -> None:
    from pytest_msprobe.modes.compare.reports.html import write_html

    write_html(
        path,
        calls,
        title=f"{pair.target_path.name} against {pair.golden_path.name}",
        about=f"{counted(len(calls), 'value')} compared token by token, as engine and trainer",
        pairs=[str(pair.target_path)],
        notes=summary.notes(),
        tokens=_tokens(pair, summary),
    )


def _tokens(pair: InferencePair, summary: InferenceSummary) -> dict[str, Any]:
    """Return what the page says token by token: labels, both log probabilities, and what was and was not compared."""
    found, notes = pair.log_probabilities, set(summary.notes())
    plain: dict[str, Any] = {"lines": [line for line in summary.lines(Counter()) if line not in notes]}
    if found is None:
        problem = pair.log_probabilities_problem or "a run has neither logits nor noted ones"
        plain["lines"].insert(0, f"no log probabilities of tokens: {problem}")
        return plain | {"labels": [], "target": [], "golden": []}
    return plain | {
        "labels": [pair.pairs.label(int(each), found.ahead) for each in found.pairs],
        "target": [page_number(float(each)) for each in found.target],
        "golden": [page_number(float(each)) for each in found.golden],
    }
