"""The graph files of a pytest run: written as its items finish, named at its end."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from msprobe_hooks.errors import DumpError
from pytest_msprobe.extensions.graphs.vis.communication import Database, Manner
from pytest_msprobe.extensions.graphs.vis.graph_folder import open_graphs
from pytest_msprobe.extensions.graphs.vis.options import VisOptions


class GraphWriting:
    """The files of one run. What cannot be drawn or written is a problem to report, and ends no run."""

    def __init__(self, options: VisOptions, manner: Manner) -> None:
        self._options = options
        self._manner = manner
        self._open = ExitStack()
        self._database: Database | None = None
        self._paths: list[Path] = []
        self.problems: list[str] = []

    def draw(self, picture: Callable[[Database], None]) -> None:
        """Draw one part; the files are opened for the first."""
        try:
            if self._database is None:
                graphs = open_graphs(self._options.folder, self._manner, self._options.form)
                self._database, self._paths = self._open.enter_context(graphs)
            picture(self._database)
        except DumpError as error:
            self.problems.append(f"msprobe report: no graph: {error}")
        except OSError as error:
            self._refused(error)

    def close(self) -> None:
        """Finish the files."""
        try:
            self._open.close()
        except OSError as error:
            self._refused(error)

    def report(self, terminalreporter: pytest.TerminalReporter, shown: Callable[[str], str], note: str = "") -> None:
        """Print where the files are, and what could not be written; ``note`` says what is not in them."""
        for path in self._paths:
            terminalreporter.line(shown(f"msprobe report: {path}{note} (tensorboard --logdir {path.parent})"))
        for problem in self.problems:
            terminalreporter.line(shown(f"ERROR: {problem}"), red=True)

    def _refused(self, error: OSError) -> None:
        folder = self._options.folder
        self.problems.append(f"msprobe report: {folder}: graphs cannot be written: {error.strerror or error}")
