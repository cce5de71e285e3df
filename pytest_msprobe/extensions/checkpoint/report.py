"""msprobe's JSON of two checkpoints: distance, cosine, number of elements and shape by parameter."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_msprobe.extensions.checkpoint.items import EXTRA
from pytest_msprobe.reports.write_errors import cannot_be_written, end_as_incomplete
from pytest_msprobe.results.result import as_json
from pytest_msprobe.storage.atomic_write import atomic_write


class CheckpointJson:
    """Collects the numbers as reports arrive and writes them at the end."""

    #: What a resumed journal had finished belongs into the file as well.
    hears_finished = True

    def __init__(self, path: Path) -> None:
        self._path = path
        self._found: dict[str, Any] = {}
        self._line = f"msprobe checkpoint JSON: {path}"

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the numbers of a parameter."""
        plain = getattr(report, "msprobe", None)
        if plain is not None and EXTRA in plain["extras"]:
            self._found[plain["record"]] = plain["extras"][EXTRA]

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the file."""
        if session.config.option.collectonly:
            return
        try:
            with atomic_write(self._path) as part:
                part.write_text(json.dumps(as_json(self._found), indent=4), encoding="utf-8")
        except OSError as error:
            self._line = f"ERROR: --msprobe-checkpoint-json: {cannot_be_written(self._path, error)}"
            end_as_incomplete(session)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say where the file is."""
        if not terminalreporter.config.option.collectonly:
            terminalreporter.line(self._line)
