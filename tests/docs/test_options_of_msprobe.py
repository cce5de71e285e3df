"""Each command and option of msprobe 26.2 has a row that says what is here in its place."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
PAGE = (REPOSITORY / "docs" / "from-msprobe.md").read_text()
#: As benchmarks/peer/list_options.py lists those of the installed package.
OPTIONS: dict[str, list[str]] = json.loads((REPOSITORY / "tests/data/msprobe_26_options.json").read_text())
SECTIONS = {
    heading: dict.fromkeys(re.findall(r"`(--?[a-zA-Z_-]+)`", "".join(re.findall(r"^\| (`.*?) \|", text, re.MULTILINE))))
    for heading, text in re.findall(r"^### (\w+)$(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL)
}


def test_each_command_has_a_section() -> None:
    assert SECTIONS.keys() == OPTIONS.keys()


@pytest.mark.parametrize("command", OPTIONS)
def test_each_option_of_a_command_has_a_row(command: str) -> None:
    assert sorted(SECTIONS[command]) == OPTIONS[command]


def test_each_row_says_whether_it_is_had_better_or_refused() -> None:
    verdicts = re.findall(r"^\| `-.*? \| (.*?) \| .+ \|$", PAGE, re.MULTILINE)
    assert len(verdicts) == len(re.findall(r"^\| `-", PAGE, re.MULTILINE))
    assert set(verdicts) == {"have", "better", "refused"}
