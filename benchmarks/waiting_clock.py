"""A plugin of `scaling.py`: ``--waiting-log FILE`` is where the controller writes what it measured.

Time and CPU run from when every worker has collected to the last result.
"""

from __future__ import annotations

import json
import resource
import time
from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option."""
    parser.addoption("--waiting-log", type=Path)


def pytest_configure(config: pytest.Config) -> None:
    """Start the clock of the process that hears of every item."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Clock(config.getoption("waiting_log")))


class _Clock:
    def __init__(self, log: Path) -> None:
        self._log = log
        self._reports = 0
        self._begin()

    @pytest.hookimpl(optionalhook=True, trylast=True)
    def pytest_xdist_node_collection_finished(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._started, self._cpu = time.perf_counter(), time.process_time()

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call":
            self._reports += 1
            self._ended, self._cpu_ended = time.perf_counter(), time.process_time()

    def pytest_sessionfinish(self) -> None:
        if self._reports:
            found = {
                "wall": self._ended - self._started,
                "cpu": self._cpu_ended - self._cpu,
                "items": self._reports,
                "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
            }
            self._log.write_text(json.dumps(found))
