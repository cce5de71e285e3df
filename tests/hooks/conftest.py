from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def records():
    """The records of one step of a dump, by name."""

    def read(folder: Path, step: int = 0, rank: str = "rank", file: str = "dump.json") -> dict[str, Any]:
        return json.loads((folder / f"step{step}" / rank / file).read_text())["data"]

    return read
