"""The sample of `make nightly` names tests that are there, and says of each why it was chosen."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LINES = [
    line.split(maxsplit=2)
    for line in (ROOT / "tests/nightly_sample.txt").read_text().splitlines()
    if line and not line.startswith("#")
]


@pytest.mark.parametrize("line", LINES, ids=lambda line: f"{line[0]} {line[1]}")
def test_a_line_has_a_kind_tests_that_are_there_and_what_they_cover(line: list[str]) -> None:
    kind, tests, covered = line
    assert kind in sampled()
    assert (ROOT / tests).exists()
    assert covered


def test_each_kind_that_make_runs_has_lines() -> None:
    assert sampled() == {kind for kind, *_ in LINES}


def sampled() -> set[str]:
    """Return the kinds of which the Makefile runs a sample."""
    return set(re.findall(r"\$\(call sample,([\w-]+)\)", (ROOT / "Makefile").read_text()))
