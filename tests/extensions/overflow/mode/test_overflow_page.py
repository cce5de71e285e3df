"""``pytest --msprobe-overflow PATH --msprobe-html FILE``."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_msprobe.extensions.overflow.items import aligned_columns
from tests.support.browser.pages import page_data
from tests.support.dumps.dump_files import forward, tensor_around, write_dump

EXAMPLE = Path(__file__).parents[4] / "examples/overflow/step0"
HOSTILE = "Torch.</script><script>alert(1)</script>.0.forward"


def test_the_page_has_a_lane_for_each_rank_where_it_began_and_how_it_spread(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_inprocess(f"--msprobe-overflow={EXAMPLE}", "--msprobe-html=out/page.html", "-Wdefault")
    result.stdout.fnmatch_lines([f"msprobe report: {pytester.path}/out/page.html"])
    data = page_data(pytester.path / "out/page.html")
    names, lanes = data["columns"]["name"], data["columns"]["lane"]
    assert data["title"] == "inf or nan arises in 1 of 29 records, first Torch.exp.0.forward, rank 2"
    assert data["lanes"] == ["rank 0", "rank 1", "rank 2", "rank 3"]
    assert [(lanes[call], names[call]) for call in data["begins"]] == [(2, "Torch.exp.0.forward")]
    spread = {(lanes[giver], names[giver], lanes[taker], names[taker]) for giver, taker in data["arrows"]}
    assert (2, "Distributed.send.0.forward", 3, "Distributed.recv.0.forward") in spread
    assert data["notes"] == ["first culprit: rank 2, Torch.exp.0.forward, between communications"]


def test_records_that_are_left_out_are_in_their_lane_without_a_result(pytester: pytest.Pytester) -> None:
    pytester.runpytest_inprocess(f"--msprobe-overflow={EXAMPLE}", "--msprobe-html=page.html", "-k", "exp")
    data = page_data(pytester.path / "page.html")
    outcomes = [data["words"]["outcome"][place] for place in data["columns"]["outcome"]]
    assert (len(outcomes), outcomes.count("fail"), outcomes.count("")) == (29, 1, 28)


def test_a_hostile_name_is_data(pytester: pytest.Pytester) -> None:
    record = forward(tensor_around(2, 3, at=1.0), output=[tensor_around(2, 3, at=float("nan"))])
    path = write_dump(pytester.path / "dump", {HOSTILE: record})
    pytester.runpytest_inprocess(f"--msprobe-overflow={path}", "--msprobe-html=page.html")
    assert page_data(pytester.path / "page.html")["columns"]["name"] == [HOSTILE]
    assert "<script>alert" not in (pytester.path / "page.html").read_text()


@pytest.mark.parametrize("option", ["--msprobe-html=.", "--msprobe-html=file/page.html"])
def test_a_page_that_cannot_be_written_is_one_line(pytester: pytest.Pytester, option: str) -> None:
    (pytester.path / "file").touch()
    result = pytester.runpytest_inprocess(f"--msprobe-overflow={EXAMPLE}", option)
    assert result.ret != 0
    (line,) = [line for line in (*result.outlines, *result.errlines) if line.startswith("ERROR: ")]
    assert "file/page.html" in line or "a directory" in line


def test_records_of_one_communication_are_in_one_column() -> None:
    names = {0: ["a", "send", "b"], 1: ["recv", "c", "all"], 2: ["x", "y", "z", "all"]}
    columns = aligned_columns(names, [[(0, "send"), (1, "recv")], [(1, "all"), (2, "all")]])
    assert columns[0, "send"] == columns[1, "recv"] == 1
    assert columns[1, "all"] == columns[2, "all"] == 3
    for rank, own in names.items():
        places = [columns[rank, name] for name in own]
        assert places == sorted(set(places))


def test_no_arrow_of_the_page_leads_back(pytester: pytest.Pytester) -> None:
    pytester.runpytest_inprocess(f"--msprobe-overflow={EXAMPLE}", "--msprobe-html=page.html")
    data = page_data(pytester.path / "page.html")
    columns = data["columns"]["column"]
    assert data["arrows"]
    assert all(columns[giver] <= columns[taker] for giver, taker in data["arrows"])
