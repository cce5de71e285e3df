"""``pytest --msprobe-communication PATH --msprobe-html FILE``."""

from __future__ import annotations

from pathlib import Path

import pytest

from msprobe_hooks.dump.communication.jsonl import CommunicationLines, Line
from tests.support.browser.pages import page_data, words_of
from tests.support.dumps.communications import all_reduce
from tests.support.dumps.dump_files import Json, tensor_around, write_dump


def write_ranks(folder: Path, *ranks: Json, late: float = 0.0) -> None:
    """Write a step; each rank begins each call so many seconds after the one before it."""
    for rank, records in enumerate(ranks):
        path = write_dump(folder / f"step0/rank{rank}", records)
        lines = CommunicationLines(path.parent)
        for place, name in enumerate(records):
            began = 10.0 * place + late * rank
            lines.write(Line("began", name, began, [tensor_around(4)]))
            lines.write(Line("ended", name, 10.0 * place + late * len(ranks)))
        lines.close()


def test_calls_of_one_communication_are_joined_and_the_first_that_differs_leads(pytester: pytest.Pytester) -> None:
    right = {**all_reduce(), **all_reduce(number=1), **all_reduce(number=2)}
    write_ranks(pytester.path / "run", right, {**all_reduce(), **all_reduce(number=2)})
    pytester.runpytest_inprocess("--msprobe-communication=run", "--msprobe-html=page.html")
    data = page_data(pytester.path / "page.html")
    names, lanes = data["columns"]["name"], data["columns"]["lane"]
    assert data["lanes"] == ["rank 0", "rank 1"]
    first = next((lanes[one], names[one], lanes[other], names[other]) for one, other in data["joins"])
    assert first == (0, "Distributed.all_reduce.0.forward", 1, "Distributed.all_reduce.0.forward")
    assert words_of(data, "outcome")[0] == "pass"
    beginning = {names[call] for call in data["begins"]}
    assert beginning
    assert "Distributed.all_reduce.0.forward" not in beginning
    assert "differ between ranks" in data["title"]


def test_who_waits_for_whom_is_in_a_call_s_details(pytester: pytest.Pytester) -> None:
    write_ranks(pytester.path / "run", all_reduce(), all_reduce(), late=2.5)
    pytester.runpytest_inprocess("--msprobe-communication=run", "--msprobe-html=page.html")
    data = page_data(pytester.path / "page.html")
    assert words_of(data, "kind") == ["waited 2.5 s", ""]
    assert dict(data["details"]["0"])["Waited for"] == "rank 1 began 2.5 s later"
    assert dict(data["details"]["0"])["With whom"] == "among ranks 0, 1"
    assert data["notes"][0].startswith("longest wait: rank 0 for rank 1")


def test_the_rank_that_differs_is_wrong_and_the_others_are_its_partners(pytester: pytest.Pytester) -> None:
    write_ranks(pytester.path / "run", all_reduce(), all_reduce(after=tensor_around(4, at=9.0)), all_reduce())
    pytester.runpytest_inprocess("--msprobe-communication=run", "--msprobe-html=page.html")
    data = page_data(pytester.path / "page.html")
    assert words_of(data, "outcome") == ["partner", "fail", "partner"]
    assert data["begins"] == [1]
    assert data["title"].endswith("first Distributed.all_reduce.0.forward, rank 1")


def test_a_rank_without_the_call_has_a_cell_where_it_is_missing(pytester: pytest.Pytester) -> None:
    twice = {**all_reduce(), **all_reduce(number=1)}
    write_ranks(pytester.path / "run", twice, all_reduce(), twice)
    pytester.runpytest_inprocess("--msprobe-communication=run", "--msprobe-html=page.html")
    data = page_data(pytester.path / "page.html")
    missing = words_of(data, "outcome").index("missing")
    assert data["lanes"][data["columns"]["lane"][missing]] == "rank 1"
    assert data["columns"]["column"][missing] == 1
    assert any(missing in join for join in data["joins"])


def test_the_command_of_each_rank_runs_the_item_of_the_first(pytester: pytest.Pytester) -> None:
    write_ranks(pytester.path / "run", all_reduce(), all_reduce())
    pytester.runpytest_inprocess("--msprobe-communication=run", "--msprobe-html=page.html")
    data = page_data(pytester.path / "page.html")
    assert data["dumps"] == ["run/step0/rank0/dump.json", "run/step0/rank1/dump.json"]
    assert data["items"] == {"1": [0, "Distributed.all_reduce.0.forward"]}
    assert data["commands"][0][1] == ["pytest", "--msprobe-communication=<dump>::<record>"]
