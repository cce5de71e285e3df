"""The least that a collector of custom items can do, to compare with: no file is read, an item is a name."""

from __future__ import annotations

from pathlib import Path

from measure import scratch

CONFTEST = """
import pytest


class BareItem(pytest.Item):
    def runtest(self):
        pass


class BareFile(pytest.File):
    def collect(self):
        for number in range({records}):
            yield BareItem.from_parent(self, name=f"Functional.linear.{{number}}.forward")


def pytest_collect_file(file_path, parent):
    if file_path.suffix == ".bare":
        return BareFile.from_parent(parent, path=file_path)
"""


def bare_items(records: int) -> Path:
    """Return a file that pytest collects as so many items that do nothing."""
    folder = scratch() / "bare"
    folder.mkdir(exist_ok=True)
    (folder / "conftest.py").write_text(CONFTEST.format(records=records))
    items = folder / "items.bare"
    items.touch()
    return items
