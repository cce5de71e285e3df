"""What a comparison keeps of its calls to the end: less than plugins heard, which can be asked for all of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytest_msprobe.modes.compare.rows import PackedBlocks
from tests.support.runs import run_pytest

ITEMS = """
def pytest_sessionfinish(session):
    for item in session.items:
        print(item.name, item.nodeid, len(list(item.iter_markers())), item.stash is not None, item.user_properties)
"""


def compare(pytester: pytest.Pytester, sides: list[Path], *words: str) -> pytest.RunResult:
    return run_pytest(pytester, "--msprobe-compare", str(sides[0]), "--msprobe-golden", str(sides[1]), *words)


def test_durations_and_reasons_are_shown_of_packed_reports(pytester: pytest.Pytester, sides: list[Path]) -> None:
    result = compare(pytester, sides, "--durations=0", "-vv", "-rsp")
    result.stdout.fnmatch_lines(["*s call * *Torch.relu.0.forward", "SKIPPED*the golden run has no such call"])


def test_an_item_that_has_run_can_be_asked_as_any(pytester: pytest.Pytester, sides: list[Path]) -> None:
    pytester.makeconftest(ITEMS)
    result = compare(pytester, sides, "-s")
    result.stdout.fnmatch_lines(
        ["*Torch.relu.0.forward target/dump.json::Torch.relu.0.forward * True *msprobe.verdict*pass*"]
    )
    assert result.ret == pytest.ExitCode.TESTS_FAILED


def test_blocks_give_back_every_text() -> None:
    blocks = PackedBlocks()
    texts: dict[tuple[int, int], Any] = {}
    for i in range(500):
        place = i % 3, (i * 7) % 400 if i % 3 else i
        if place not in blocks:
            texts[place] = f"{i} ".encode() * (i % 50)
            blocks.add(*place, texts[place])
    assert len(blocks) == len(texts)
    assert [*blocks.places()] == sorted(texts)
    assert {place: blocks.at(*place) for place in blocks.places()} == texts
    with pytest.raises(KeyError):
        blocks.at(9, 9)
