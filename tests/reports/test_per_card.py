"""Cards that checked the same records, next to each other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_msprobe.reports.worst_margins import Worst, lines, side_by_side
from tests.support.conftests import device_after_each_call
from tests.support.runs import check


def worst(margin: float, outcome: str = "pass") -> Worst:
    return Worst("Torch.mul.0.forward", outcome, margin, 0 if outcome == "pass" else 2, 1)


def test_cards_that_came_to_the_same_are_reported_in_one_line() -> None:
    one = {"Torch.mul forward": worst(0.5), "Torch.add forward": worst(0.0)}
    assert list(lines({f"npu:{index}": one for index in range(4)})) == ["all 4 cards agree in 2 APIs"]


def test_the_card_that_is_unlike_the_others_is_named_with_the_apis() -> None:
    good = {"Torch.mul forward": worst(0.5), "Torch.add forward": worst(0.25)}
    bad = good | {"Torch.mul forward": worst(70.0, "fail")}
    assert list(lines({"npu:0": good, "npu:1": bad, "npu:2": good})) == [
        "npu:1 differs from the others in 1 of 2 APIs",
        "error / allowed, by card  npu:0    npu:1  npu:2",
        "Torch.mul forward           0.5  70 fail    0.5",
    ]


def test_of_two_cards_none_is_said_to_be_the_odd_one() -> None:
    text = list(lines({"npu:0": {"Torch.mul forward": worst(0.5)}, "npu:1": {"Torch.mul forward": worst(0.9)}}))
    assert text[0] == "the cards differ in 1 of 1 API"


def test_what_one_card_did_not_judge_is_unlike_the_others() -> None:
    one = {"Torch.mul forward": worst(0.5)}
    text = list(lines({"npu:0": one, "npu:1": one, "npu:2": {}}))
    assert text[0] == "npu:2 differs from the others in 1 of 1 API"
    assert text[-1].split() == ["Torch.mul", "forward", "0.5", "0.5", "-"]


@given(st.integers(3, 9), st.integers(0, 8), st.floats(0.1, 0.5), st.floats(1.3, 100))
def test_whichever_card_alone_is_worse_is_the_odd_one(count: int, place: int, margin: float, factor: float) -> None:
    place %= count
    columns = [{"api": worst(margin * factor if card == place else margin)} for card in range(count)]
    (row,) = side_by_side(columns)
    assert row.odd == place


@pytest.mark.nightly
@pytest.mark.slow
def test_a_planted_bad_card_is_named_where_each_card_checks_the_same_dump(
    pytester: pytest.Pytester, write_dump: Callable[..., Path], element: Any, forward: Any
) -> None:
    dump = write_dump({f"Torch.{api}.0.forward": forward(element(64)) for api in ("exp", "sin", "abs")})
    pytester.makeconftest(device_after_each_call("if self.index == 1 and 'sin' in record: result = result * 1.01"))
    found = check(
        pytester, f"--msprobe-dump={dump}", "--msprobe-device=faulty:0-2", "--dist=each", "--tx=3*popen", apart=True
    )
    assert "faulty:1 differs from the others in 1 of 3 APIs" in found.output
