"""A plugin that takes the line of progress out of a run and puts it back, block by block, and writes what each cost."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

LINE = "msprobe-progress-line"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--progress-log", type=Path, help="where CPU seconds an item are written, of blocks with and without"
    )
    parser.addoption("--progress-block", type=int, default=250, help="items of a block")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Toggle(config), "progress-toggle")


class Toggle:
    """Measures blocks of items with all threads of the process, by turns with the line and without."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._items = config.getoption("progress_block")
        self._line: Any = None
        self._count = 0
        self._began = 0.0
        self._blocks: dict[str, list[float]] = {"with": [], "without": []}

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self) -> Iterator[None]:
        """Begin a block where the one before is full."""
        if self._count % self._items == 0:
            self._next_block()
        self._count += 1
        return (yield)

    def _next_block(self) -> None:
        now, manager = time.process_time(), self._config.pluginmanager
        is_with = manager.hasplugin(LINE)
        if self._count:
            self._blocks["with" if is_with else "without"].append((now - self._began) / self._items)
        if is_with:
            self._line = manager.unregister(name=LINE)
            # Its thread draws nothing then.
            self._line.pytest_enter_pdb()
        elif self._line is not None:
            manager.register(self._line, LINE)
        self._began = time.process_time()

    def pytest_unconfigure(self) -> None:
        """Write the seconds of all blocks."""
        self._config.getoption("progress_log").write_text(json.dumps(self._blocks))
