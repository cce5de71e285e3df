"""The command that finds the source lines of kernels."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from pytest_msprobe.commands.main import main
from tests.support.dumps.static_graphs import TITLES, GraphFolder, dense_step, write_graph_text

WEIGHT = np.ones((4, 2), np.float32)


@pytest.fixture
def run(tmp_path: Path) -> GraphFolder:
    return GraphFolder(tmp_path / "dump")


def table(folder: Path) -> list[dict[str, str]]:
    (path,) = folder.rglob("*.csv")
    with path.open(newline="") as file:
        return [*csv.DictReader(file)]


def test_each_tensor_is_reported_with_its_lines(
    run: GraphFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dense_step(run, run.iteration(), WEIGHT)
    write_graph_text(run)
    assert main(["msprobe", "code-mapping", str(run.folder), "--output", str(tmp_path / "out")]) == 0
    rows = table(tmp_path / "out")
    assert [*rows[0]] == ["File Path", "Code Stack", "Scope Name"]
    assert {row["File Path"] for row in rows} == {str(path) for path in run.iteration().iterdir()}
    product = next(row for row in rows if "/MatMul.Default" in row["File Path"])
    assert product["Scope Name"] == "Default/f-Dense/MatMul-op0"
    assert product["Code Stack"].splitlines()[1] == "In file /home/me/net.py:11, 12~21/        y = self.f(x)"
    assert "10 of 13 tensors have source lines" in capsys.readouterr().out


ROW = 'ReLU,Default/act-ReLU/ReLU-op0,0,0,1,output,0,24,float32,"(3,2)",1,0,0,1'


def statistics_of(run: GraphFolder, text: str) -> Path:
    own = run.iteration() / "statistic.csv"
    own.write_text(text)
    write_graph_text(run)
    return own


@pytest.mark.parametrize("text", [f"{TITLES}\n{ROW}\n", f"{TITLES}\n\n{ROW}\n"], ids=["rows", "an empty line"])
def test_statistics_are_copied_and_stay_as_they_were(run: GraphFolder, tmp_path: Path, text: str) -> None:
    own = statistics_of(run, text)
    assert main(["msprobe", "code-mapping", str(run.folder), "--output", str(tmp_path / "out")]) == 0
    (row,) = table(tmp_path / "out")
    assert [*row] == [*TITLES.split(","), "Code Stack", "Scope Name"]
    assert row["Scope Name"] == "Default/act-ReLU/ReLU-op0"
    assert own.read_text() == text


@pytest.mark.parametrize("place", ["dump", "dump/rank_0", "dump/rank_0/Net/0"])
def test_a_dump_is_named_as_seen_from_within(
    run: GraphFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    statistics_of(run, f"{TITLES}\n{ROW}\n")
    monkeypatch.chdir(tmp_path / place)
    assert main(["msprobe", "code-mapping", ".", "--output", str(tmp_path / "out")]) == 0
    assert (tmp_path / "out" / "rank_0" / "Net" / "0" / "0" / "statistic.csv").is_file()


def test_a_copy_does_not_take_the_place_of_the_dumps_own_table(
    run: GraphFolder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = f"{TITLES}\n{ROW}\n"
    own = statistics_of(run, text)
    monkeypatch.chdir(run.folder)
    assert main(["msprobe", "code-mapping", "rank_0"]) == 2
    assert (
        "statistic.csv: would overwrite the dump's own table; pass another folder: --output DIR"
        in capsys.readouterr().err
    )
    assert own.read_text() == text


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (None, "dump/rank_0: no graphs/*.ir found; pass the text of the graph: --ir FILE"),
        ("%0(a) = Load(%1)\n", "other.ir: no node has a scope; pass a text that MindSpore wrote in this run"),
    ],
)
def test_a_text_that_is_missing_or_shows_nothing_is_one_clear_line(
    run: GraphFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str | None, problem: str
) -> None:
    dense_step(run, run.iteration(), WEIGHT)
    words = ["msprobe", "code-mapping", str(run.folder), "--output", str(tmp_path)]
    if text is not None:
        (tmp_path / "other.ir").write_text(text)
        words += ["--ir", str(tmp_path / "other.ir")]
    assert main(words) == 2
    assert problem in capsys.readouterr().err


def test_a_folder_without_a_graph_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["msprobe", "code-mapping", str(tmp_path)]) == 2
    assert f"{tmp_path}: not a dump of a static graph; pass the folder of rank_0" in capsys.readouterr().err


def test_a_row_that_ends_early_keeps_its_lines_in_their_columns(run: GraphFolder, tmp_path: Path) -> None:
    statistics_of(run, f"{TITLES}\n{ROW.removesuffix(',0,1')}\n")
    assert main(["msprobe", "code-mapping", str(run.folder), "--output", str(tmp_path / "out")]) == 0
    (row,) = table(tmp_path / "out")
    assert row["Scope Name"] == "Default/act-ReLU/ReLU-op0"
    assert row["L2Norm Value"] == ""
