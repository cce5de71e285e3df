"""A plugin of `scaling.py`: pytest items that wait and do nothing else; ``*.waits`` is a JSON list of seconds."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


class BareItem(pytest.Item):
    """Waits."""

    def __init__(self, *, seconds: float, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._seconds = seconds

    def runtest(self) -> None:
        """Wait."""
        time.sleep(self._seconds)


class BareFile(pytest.File):
    """A list of seconds."""

    def collect(self) -> Iterator[BareItem]:
        """Yield an item for each number."""
        for number, seconds in enumerate(json.loads(self.path.read_text())):
            yield BareItem.from_parent(self, name=f"Functional.conv2d.{number}.forward", seconds=seconds)


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> BareFile | None:
    """Collect such files."""
    return BareFile.from_parent(parent, path=file_path) if file_path.suffix == ".waits" else None
