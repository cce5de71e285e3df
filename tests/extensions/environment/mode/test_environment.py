"""``--msprobe-environment``: what is collected and reported, and what wrong input becomes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from msprobe_hooks.extensions.environment.start_file import Started, TensorFact, rank_file, write_started
from tests.support.browser.pages import page_data

Check = Callable[..., Any]
FLAG = "--msprobe-environment"


@pytest.fixture
def write(pytester: pytest.Pytester) -> Callable[..., None]:
    """Write what the ranks 0, 1 ... of a start were started with."""

    def write(folder: str, *ranks: Started) -> None:
        for rank, one in enumerate(ranks):
            one.rank = rank
            write_started(rank_file(pytester.path / folder, rank), one)

    return write


def start(lr: str = "0.1", at: float = 1.0) -> Started:
    weights = {0: {"w": TensorFact(at, 0, at, at, "float32", (2,), str(at))}}
    return Started(texts={"run.sh": f"torchrun t.py --lr {lr}"}, packages={"torch": "2", "x": "1"}, weights=weights)


@pytest.mark.parametrize("way", [[], pytest.param(["-n2"], marks=pytest.mark.slow)], ids=" ".join)
def test_each_fact_of_each_rank_is_an_item(write: Callable[..., None], check: Check, way: list[str]) -> None:
    write("a", start(lr="0.2"), start(at=2.0))
    write("b", start(), start())
    checked = check(f"{FLAG}=a", "--msprobe-golden=b", *way, apart=bool(way))
    assert "error: hyperparameters/lr: 0.2, golden 0.1" in checked.output
    assert "8 facts: 6 passed, 2 failed" in checked.output
    one = check(f"{FLAG}=a/rank1.json::weights/step0/w", "--msprobe-golden=b")
    assert one.exit_code == 1


def test_what_only_one_side_reports_is_said_and_not_compared(write: Callable[..., None], check: Check) -> None:
    write("a", Started(texts={"run.sh": "torchrun t.py --x '", "b.yaml": "lr: 1"}, seeds={}))
    write("b", Started(texts={"b.yaml": "lr: 1"}), Started())
    checked = check(f"{FLAG}=a", "--msprobe-golden=b")
    assert checked.exit_code == 0
    assert "rank 0: run.sh cannot be read as settings: No closing quotation" in checked.output
    assert "rank 0: not compared, only the target has them: seeds" in checked.output
    assert "golden rank 1: the target has no such rank" in checked.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([f"{FLAG}=a"], "--msprobe-environment needs a golden launch configuration; pass --msprobe-golden PATH"),
        ([f"{FLAG}=a", "--msprobe-golden=none"], "'none': no such file or directory"),
        ([f"{FLAG}=a", "--msprobe-golden=b"], "it has ranks 0; name one with this rank"),
        ([f"{FLAG}=empty", "--msprobe-golden=b"], ": no rank<n>.json; name the folder"),
        ([f"{FLAG}=broken", "--msprobe-golden=b"], "the JSON ends too early; pass a file"),
        ([f"{FLAG}=other", "--msprobe-golden=b"], "not the file of a training environment"),
        ([f"{FLAG}=newer", "--msprobe-golden=b"], "has format 2, but this version reads format 1"),
        (
            [f"{FLAG}=b", "--msprobe-golden=a", "-omsprobe_fuzzy=true"],
            "msprobe_fuzzy has no effect without --msprobe-compare",
        ),
        ([f"{FLAG}=b", "--msprobe-golden=a", "--msprobe-xlsx=a/rank0.json"], "not a directory"),
    ],
)
def test_wrong_input_is_one_line(
    write: Callable[..., None], check: Check, pytester: pytest.Pytester, arguments: list[str], message: str
) -> None:
    write("a", start(), start())
    write("b", start())
    files = {"empty/x": "", "broken/rank0.json": "{", "other/rank0.json": "{}"}
    files["newer/rank0.json"] = '{"format": "msprobe-environment", "version": 2}'
    for name, text in files.items():
        Path(name).parent.mkdir()
        Path(name).write_text(text)
    checked = check(*arguments)
    assert checked.exit_code == 4
    assert message in checked.errors
    assert "Traceback" not in checked.errors


def test_a_start_is_written_from_the_command_line(check: Check, pytester: pytest.Pytester) -> None:
    from pytest_msprobe.commands.main import main

    Path("run.sh").write_text("torchrun t.py --lr 0.1")
    assert [main(["environment", "-o", name, "run.sh"]) for name in ("a", "b")] == [0, 0]
    assert main(["environment", "-o", "c", "none.sh"]) == 2
    checked = check(f"{FLAG}=a", "--msprobe-golden=b")
    assert "the two environments are equal" in checked.output
    assert checked.outcomes["hyperparameters/lr"] == "passed"


def test_the_page_has_what_differs_with_both_values(
    write: Callable[..., None], check: Check, pytester: pytest.Pytester
) -> None:
    write("a", start(lr="0.2"), start(at=2.0))
    write("b", start(), start())
    check(f"{FLAG}=a", "--msprobe-golden=b", "--msprobe-html=page.html")
    data = page_data(pytester.path / "page.html")
    assert data["title"] == "2 of 8 facts differ"
    differing = {row[0]: (row[2], row[4], row[5]) for row in data["rows"] if row[2] != "pass"}
    assert differing["rank0/hyperparameters/lr"] == ("fail", "0.2", "0.1")
    names = [row[0] for row in data["rows"]]
    assert len(names) == len(set(names)) == 8
