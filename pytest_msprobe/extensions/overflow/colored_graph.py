"""The graph of a run in which inf and nan were looked for, coloured by their levels."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

import pytest

from msprobe_hooks.dump.anomalies.ignore_rules import IgnoreRules
from msprobe_hooks.dump.reader import Dump
from pytest_msprobe.extensions.graphs.vis.model import Manner
from pytest_msprobe.extensions.graphs.vis.options import VisOptions
from pytest_msprobe.extensions.graphs.vis.reporting import GraphWriting
from pytest_msprobe.extensions.graphs.vis.single import draw_single, places_of
from pytest_msprobe.reports.text import printable
from pytest_msprobe.reports.write_errors import end_as_incomplete


class OverflowGraphs:
    """Writes the graphs when the run ends. They are drawn from the dumps, so a selection of items leaves none out."""

    def __init__(self, options: VisOptions, dumps: Mapping[Path, Dump], rules: IgnoreRules) -> None:
        self._dumps = list(dumps.values())
        self._places = places_of(dumps)
        self._rules = rules
        self._writing = GraphWriting(options, Manner(overflow=True, all_frames=options.all_frames))

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the graphs."""
        self._writing.draw(partial(draw_single, dumps=self._dumps, places=self._places, rules=self._rules))
        self._writing.close()
        if self._writing.problems:
            end_as_incomplete(session)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say where the graphs are."""
        self._writing.report(terminalreporter, printable)
