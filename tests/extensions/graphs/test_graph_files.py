"""``--msprobe-vis``: graphs as a report of a comparison and of a search for overflow."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.support.dumps.compared import Runs
from tests.support.dumps.dump_files import Json, forward, tensor, write_dump
from tests.support.runs import run_pytest

NAMES = ["Module.net.Net.forward.0", "Torch.add.0.forward", "Torch.add.1.forward"]


def nodes(folder: Path, column: str) -> dict[str, Any]:
    (file,) = folder.glob("*.vis.db")
    with closing(sqlite3.connect(file)) as connection:
        return dict(connection.execute(f"SELECT node_name, {column} FROM tb_nodes WHERE data_source = 'NPU'"))


@pytest.fixture
def sides(runs: Runs, tensor: Callable[..., Json]) -> tuple[Path, Path]:
    def records(at: float) -> Json:
        calls = {name: forward(tensor(2), output=[tensor(2, at=1.0)]) for name in NAMES}
        return calls | {NAMES[2]: forward(tensor(2), output=[tensor(2, at=at)])}

    for side in ("target", "golden"):
        runs.folder.joinpath(side).mkdir()
        runs.construct(side, {NAMES[0]: None, NAMES[1]: NAMES[0], NAMES[2]: NAMES[0]})
    return runs.both(records(2.0), records(1.0), level="mix")


def test_a_comparison_writes_what_it_found(
    compare: Callable[..., pytest.RunResult], sides: tuple[Path, Path], tmp_path: Path
) -> None:
    result = compare(*sides, "--msprobe-vis", str(tmp_path / "graphs"))
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(["*msprobe report: *.vis.db (tensorboard --logdir *graphs)"])
    assert [nodes(tmp_path / "graphs", "precision_index")[name] for name in NAMES] == [0.0, 0.0, 1.0]


def test_calls_that_were_not_run_are_nodes_without_colour(
    compare: Callable[..., pytest.RunResult], sides: tuple[Path, Path], tmp_path: Path
) -> None:
    compare(*sides, "--msprobe-vis", str(tmp_path / "graphs"), "-k", "add.1")
    assert [nodes(tmp_path / "graphs", "precision_index")[name] for name in NAMES] == [None, None, 1.0]
    assert json.loads(nodes(tmp_path / "graphs", "matched_node_link")[NAMES[1]])[-1] == NAMES[1]


def test_a_folder_that_holds_graphs_is_refused_before_anything_runs(
    compare: Callable[..., pytest.RunResult], sides: tuple[Path, Path], tmp_path: Path
) -> None:
    (tmp_path / "graphs").mkdir()
    (tmp_path / "graphs" / "old.vis").touch()
    result = compare(*sides, "--msprobe-vis", str(tmp_path / "graphs"))
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*graphs: holds old.vis already*pass another folder*"])


def test_a_recording_without_modules_is_refused_before_anything_runs(
    compare: Callable[..., pytest.RunResult], runs: Runs, tmp_path: Path
) -> None:
    calls = {NAMES[1]: forward(tensor(2))}
    result = compare(*runs.both(calls, calls), "--msprobe-vis", str(tmp_path / "graphs"))
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*level L1 records no modules*record at level L0 or mix*"])


def test_graphs_that_cannot_be_drawn_are_a_problem_of_the_report(
    compare: Callable[..., pytest.RunResult], sides: tuple[Path, Path], tmp_path: Path
) -> None:
    (tmp_path / "golden" / "construct.json").write_text("{}")
    result = compare(*sides, "--msprobe-vis", str(tmp_path / "graphs"), "-k", "add.0")
    result.assert_outcomes(passed=1, deselected=2)
    assert result.ret == pytest.ExitCode.INTERNAL_ERROR
    result.stdout.fnmatch_lines(["*no graph: *golden*construct.json: names no module of any record*"])


@pytest.mark.parametrize("words", [["--msprobe-vis-format", "db"], ["--msprobe-vis-complete-stack"]])
def test_words_about_graphs_need_a_folder(
    compare: Callable[..., pytest.RunResult], sides: tuple[Path, Path], words: list[str]
) -> None:
    result = compare(*sides, *words)
    result.stderr.fnmatch_lines([f"*{words[0]} has no effect without --msprobe-vis; pass --msprobe-vis DIR"])


def test_a_search_for_overflow_writes_its_levels(pytester: pytest.Pytester, tmp_path: Path) -> None:
    calls = {NAMES[1]: forward(tensor(2), output=[tensor(2, high="Infinity")])}
    dump = write_dump(tmp_path / "rank0", calls, parents={NAMES[1]: None}, level="mix")
    run_pytest(pytester, "--msprobe-overflow", dump, "--msprobe-vis", tmp_path / "graphs").assert_outcomes(failed=1)
    assert nodes(tmp_path / "graphs", "overflow_level")[NAMES[1]] == "critical"


def test_what_a_resumed_run_does_not_know_is_said(
    compare: Callable[..., pytest.RunResult], sides: tuple[Path, Path], tmp_path: Path
) -> None:
    journal = str(tmp_path / "run.jsonl")
    compare(*sides, "-k", "add.0", "--msprobe-journal", journal)
    result = compare(*sides, "--msprobe-resume", journal, "--msprobe-vis", str(tmp_path / "graphs"))
    result.stdout.fnmatch_lines(["*without colours for the 1 call finished before this run*"])


def test_runs_of_structure_are_compared_by_their_calls(
    compare: Callable[..., pytest.RunResult], runs: Runs, tmp_path: Path
) -> None:
    for side in ("target", "golden"):
        runs.folder.joinpath(side).mkdir()
        missing = {} if side == "target" else {NAMES[2]: NAMES[0]}
        runs.construct(side, {NAMES[0]: None, NAMES[1]: NAMES[0], "optimizer": None} | missing)
    dumps = runs.both({}, {}, level="mix", task="structure")
    result = compare(*dumps, "--msprobe-vis", str(tmp_path / "graphs"), "--msprobe-html", str(tmp_path / "page.html"))
    result.assert_outcomes(passed=2, skipped=1)
    result.stdout.fnmatch_lines(["*(structure)", "*the target has no such call*"])
    assert json.loads(nodes(tmp_path / "graphs", "matched_node_link")[NAMES[1]])[-1] == NAMES[1]
    assert nodes(tmp_path / "graphs", "precision_index")[NAMES[1]] is None


@pytest.mark.slow
def test_workers_that_share_the_ranks_give_one_file(
    compare: Callable[..., pytest.RunResult], sides: tuple[Path, Path], tmp_path: Path
) -> None:
    for side in ("target", "golden"):
        for rank in ("rank0", "rank1"):
            shutil.copytree(tmp_path / side, tmp_path / "ranks" / side / rank)
    folders = tmp_path / "ranks" / "target", tmp_path / "ranks" / "golden"
    result = compare(*folders, "--msprobe-vis", str(tmp_path / "graphs"), "-n", "2", apart=True)
    result.assert_outcomes(passed=4, failed=2)
    (file,) = (tmp_path / "graphs").iterdir()
    with closing(sqlite3.connect(file)) as connection:
        query = "SELECT rank, node_name FROM tb_nodes WHERE precision_index = 1"
        assert sorted(connection.execute(query)) == [(0, NAMES[2]), (1, NAMES[2])]
