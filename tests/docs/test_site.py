"""What the site says is what is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WRITTEN = sorted(path for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def test_the_first_page_shows_the_program_that_is_run() -> None:
    program = (ROOT / "examples/first_check/train.py").read_text().partition("\n\n")[2]
    assert f"```python\n{program}```" in (ROOT / "docs/index.md").read_text()


@pytest.mark.parametrize("page", WRITTEN, ids=lambda path: path.name)
def test_links_to_files_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []
