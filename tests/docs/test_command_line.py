"""The page of the command line says what the parsers know."""

from __future__ import annotations

import re

import pytest

from pytest_msprobe.commands.registry import commands
from website.command_line import PAGE, page

WRITTEN = PAGE.read_text()


def test_the_page_of_the_command_line_is_what_the_parsers_say() -> None:
    assert page() == WRITTEN, "run `make command-line`"


def test_every_option_and_setting_of_ours_is_on_the_page(pytestconfig: pytest.Config) -> None:
    registered = pytestconfig._parser._groups  # pytest lists its options nowhere in public
    options = [name for group in registered for option in group.options for name in option.names()]
    ours = [name for name in options if name.startswith("--msprobe-")]
    settings = [name for name in pytestconfig._parser._inidict if name.startswith("msprobe_")]
    assert len(ours) > 40
    assert len(settings) > 10
    assert [name for name in ours if f"\n| `{name}" not in WRITTEN] == []
    assert [name for name in settings if f"\n| `{name}`" not in WRITTEN] == []


def test_every_command_has_a_heading_and_every_link_within_the_page_has_one() -> None:
    headings = re.findall(r"^##+ (.+)", WRITTEN, re.MULTILINE)
    assert [name for name, _ in commands() if f"pytest-msprobe {name}" not in headings] == []
    anchors = {heading.lower().replace(" ", "-") for heading in headings}
    assert set(re.findall(r"\]\(#([^)]+)\)", WRITTEN)) <= anchors


def test_lines_outside_of_tables_and_code_have_at_most_120_characters() -> None:
    assert [line for line in WRITTEN.splitlines() if len(line) > 120 and not line.startswith(("|", "    "))] == []
