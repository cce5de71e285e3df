"""A pytest plugin that writes when a run got how far, in seconds since the process began to import it.

pytest -p moments --moments FILE ...
"""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

_BEGAN = time.perf_counter()


class Moments:
    """Notes the first time that each moment comes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.seconds: dict[str, float] = {}

    def note(self, moment: str) -> None:
        """Note a moment and write what is known."""
        if moment not in self.seconds:
            self.seconds[moment] = time.perf_counter() - _BEGAN
            self.path.write_text(json.dumps(self.seconds))

    def pytest_sessionstart(self) -> None:
        """Note that the dumps and the journal have been read."""
        self.note("configured")

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self) -> None:
        """Note that every item is collected and none left out yet."""
        self.note("collected")

    def pytest_runtest_logstart(self) -> None:
        """Note that an item starts."""
        self.note("first item")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--moments", required=True, type=Path)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Moments(config.getoption("moments")))
