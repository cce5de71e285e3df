"""What a written page holds as data."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec


def page_data(page: Path) -> dict[str, Any]:
    """Return the data that a page's scripts read."""
    text = page.read_text(encoding="utf-8")
    found = re.search('<script id="data" type="application/json">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    data: dict[str, Any] = msgspec.json.decode(found[1])
    return data


def words_of(data: dict[str, Any], name: str) -> list[Any]:
    """Return what a column of the page of a check says of each row."""
    return [data["words"][name][place] for place in data["columns"][name]]
