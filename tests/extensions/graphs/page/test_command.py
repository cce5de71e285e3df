"""``pytest-msprobe graph --html``: pages without tests."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_msprobe.commands.main import main
from tests.support.dumps.dump_files import forward, tensor_around, write_dump

BLOCK, ONE, TWO = "Module.block.Block.forward.0", "Torch.relu.0.forward", "Torch.tanh.0.forward"


@pytest.fixture
def dump(tmp_path: Path) -> Callable[..., Path]:
    """Write a run of two calls, the first in a block, and return its dump."""

    def write(name: str, returned: float = 2.0, **top: Any) -> Path:
        def call(given: float, returns: float) -> Any:
            return forward(tensor_around(2, at=given), output=[tensor_around(2, at=returns)])

        records = {ONE: call(1.0, returned), BLOCK: call(1.0, returned), TWO: call(returned, 3.0)}
        return write_dump(tmp_path / name, records, parents={ONE: BLOCK, TWO: None}, **({"level": "mix"} | top))

    return write


def graphs(page: Path) -> Any:
    text = page.read_text()
    start = text.index(">", text.index('<script id="data"')) + 1
    return json.loads(text[start : text.index("</script>", start)])["graphs"]


def test_one_run_is_a_page_and_nothing_else(dump: Callable[..., Path], tmp_path: Path) -> None:
    page = tmp_path / "new" / "page.html"
    assert main(["graph", str(dump("run").parent), "--html", str(page)]) == 0
    (graph,) = graphs(page)
    assert graph["target"]["names"][1:] == [BLOCK, ONE, TWO]
    assert graph["golden"] is None
    assert not (tmp_path / "graphs").exists()


def test_two_runs_are_coloured_by_verdict(dump: Callable[..., Path], tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    target, golden = dump("target", returned=2.5), dump("golden")
    assert main(["graph", str(target), "--golden", str(golden), "--html", str(page)]) == 0
    (graph,) = graphs(page)
    assert graph["target"]["outcomes"] == " fff"
    assert graph["target"]["causes"] == " ici"
    assert graph["partners"] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (float("nan"), "inf or nan comes in with an input, and no call that was recorded before returned any"),
        (float("-inf"), "nan in the output, of inf in the input"),
    ],
)
def test_the_call_in_which_a_search_for_overflow_says_that_nan_begins_is_the_culprit(
    tmp_path: Path, given: float, words: str
) -> None:
    page, nan = tmp_path / "page.html", tensor_around(2, at=float("nan"))
    records = {name: forward(bad, output=[nan]) for name, bad in ((ONE, tensor_around(2, at=given)), (TWO, nan))}
    run = write_dump(tmp_path / "run", records | {BLOCK: records[ONE]}, parents={ONE: BLOCK, TWO: None}, level="mix")
    assert main(["graph", str(run), "--html", str(page)]) == 0
    (graph,) = graphs(page)
    assert (graph["target"]["outcomes"], graph["target"]["causes"]) == (" wfw", " ici")
    assert words in page.read_text()
    assert f"inf or nan arises in 1 call, first {ONE}" in page.read_text()


def test_a_sum_of_all_ranks_that_overflows_is_a_culprit_and_one_of_what_a_rank_sent_is_none(tmp_path: Path) -> None:
    own, sent = (f"Distributed.all_reduce.{number}.forward" for number in (0, 1))
    one, nan = tensor_around(2, at=1.0), tensor_around(2, at=float("nan"))
    for rank, given in ((0, one), (1, nan)):
        records = {own: forward(one, output=[nan]), sent: forward(given, output=[nan])}
        write_dump(tmp_path / "step0" / f"rank{rank}", records, level="mix", parents=dict.fromkeys(records))
    page = tmp_path / "page.html"
    assert main(["graph", str(tmp_path / "step0"), "--html", str(page)]) == 0
    first, second = graphs(page)
    assert (first["target"]["outcomes"], first["target"]["causes"]) == ("  fw", "  ci")
    assert (second["target"]["outcomes"], second["target"]["causes"]) == ("  fw", "  ci")
    assert f"inf or nan received from another rank: rank 1, {sent}" in page.read_text()


def test_where_inf_arises_the_block_around_is_no_culprit(dump: Callable[..., Path], tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert main(["graph", str(dump("run", returned=float("inf"))), "--html", str(page)]) == 0
    (graph,) = graphs(page)
    assert graph["target"]["outcomes"] == " ffw"
    assert graph["target"]["causes"] == " ic "


def test_a_dump_without_modules_is_refused_and_leaves_no_page(
    dump: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.html"
    assert main(["graph", str(dump("run", level="L1")), "--html", str(page)]) == 2
    assert "level L1 records no modules" in capsys.readouterr().err
    assert list(tmp_path.glob("*.html*")) == list(tmp_path.glob(".*.part")) == []


def test_two_runs_are_refused_where_one_does_not_show_its_modules(
    dump: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target, golden, page = dump("target"), dump("golden"), tmp_path / "page.html"
    (golden.parent / "construct.json").write_text("{}")
    assert main(["graph", str(target), "--golden", str(golden), "--html", str(page)]) == 2
    assert f"{golden.parent / 'construct.json'}: names no module of any record" in capsys.readouterr().err
    assert not page.exists()
