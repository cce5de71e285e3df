"""Two static graph dumps compared: kernels in the order in which they ran, and the one where the runs part."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pytest_msprobe.commands.main import main
from tests.support.dumps.static_graphs import TITLES, GraphFolder, dense_step, write_graph_text

Compare = Callable[..., pytest.RunResult]
WEIGHT = np.linspace(-0.7, 0.9, 8, dtype=np.float32).reshape(4, 2)
CHANGED = WEIGHT + np.float32([[0, 0.125], [0, 0], [0, 0], [0, 0]])


@pytest.fixture
def sides(tmp_path: Path) -> tuple[GraphFolder, GraphFolder]:
    return GraphFolder(tmp_path / "target"), GraphFolder(tmp_path / "golden")


def test_equal_runs_have_no_call_that_differs(compare: Compare, sides: tuple[GraphFolder, GraphFolder]) -> None:
    for side in sides:
        for number in range(2):
            dense_step(side, side.iteration(number), WEIGHT)
    result = compare(*(side.folder for side in sides))
    result.assert_outcomes(passed=12)
    result.stdout.fnmatch_lines(["no compared call differs*"])


def test_a_changed_weight_is_named_where_it_goes_in(compare: Compare, sides: tuple[GraphFolder, GraphFolder]) -> None:
    target, golden = sides
    dense_step(target, target.iteration(), CHANGED)
    dense_step(golden, golden.iteration(), WEIGHT)
    result = compare(target.folder, golden.folder)
    result.stdout.fnmatch_lines(
        [
            "*first forward culprit: Kernel.Default_f-Dense_MatMul-op0.0.forward *",
            "    its inputs differ, too: input.1 (*",
        ]
    )
    assert "backward culprit" not in result.stdout.str()


def test_what_a_failure_prints_runs_its_kernel_alone(
    compare: Compare, pytester: pytest.Pytester, sides: tuple[GraphFolder, GraphFolder]
) -> None:
    target, golden = sides
    for number in range(2):
        dense_step(target, target.iteration(number), CHANGED)
        dense_step(golden, golden.iteration(number), WEIGHT)
    printed = compare(target.folder, golden.folder, "-k", "MatMul-op0").stdout.str().splitlines()
    words = next(line for line in printed if line.startswith("Run this item alone: pytest ")).split()[5:]
    assert words[0] == f"--msprobe-compare={target.iteration()}::Kernel.Default_f-Dense_MatMul-op0.0.forward"
    pytester.runpytest(*words).assert_outcomes(failed=1)


def test_the_id_of_a_kernel_is_of_its_iteration_and_not_of_one_of_its_files(
    pytester: pytest.Pytester, sides: tuple[GraphFolder, GraphFolder]
) -> None:
    for side, weight in zip(sides, (CHANGED, WEIGHT), strict=True):
        for number in range(2):
            dense_step(side, side.iteration(number), weight)
    arguments = ("--msprobe-compare=target", "--msprobe-golden=golden")
    first = pytester.runpytest_inprocess(*arguments, "-k", "MatMul-op0", "--msprobe-journal=run.jsonl")
    first.assert_outcomes(failed=2, deselected=10)
    shown = "target/rank_0/Net/0/{}::Kernel.Default_f-Dense_MatMul-op0.0.forward"
    first.stdout.fnmatch_lines([f"FAILED {shown.format(number)} - *" for number in range(2)])
    again = pytester.runpytest_inprocess(*arguments, "--lf")
    again.assert_outcomes(failed=2)
    resumed = pytester.runpytest_inprocess(*arguments, "--msprobe-resume=run.jsonl", "--msprobe-csv=tables")
    assert resumed.parseoutcomes()["deselected"] == 2
    assert main(["report", "run.jsonl", "--junit", "report.xml", "--csv", "reported"]) == 0
    commands = re.findall(r"--msprobe-compare=(\S+)::Kernel.Default_f", Path("report.xml").read_text())
    assert commands == [str(sides[0].iteration(number)) for number in range(2)]
    assert {path.parent.name for path in Path("reported").rglob("*details*.csv")} == {"0", "1"}


def test_a_kernel_whose_file_was_cut_off_fails_alone(compare: Compare, sides: tuple[GraphFolder, GraphFolder]) -> None:
    for side in sides:
        dense_step(side, side.iteration(), WEIGHT)
    *_, last = sorted(sides[0].iteration().glob("ReluGrad*"))
    last.write_bytes(last.read_bytes()[:-1])
    result = compare(*(side.folder for side in sides))
    result.assert_outcomes(passed=5, failed=1)
    result.stdout.fnmatch_lines([f"*{last.name}: incomplete, it holds 23 of 24 bytes; the run ended while *"])


def test_the_table_shows_the_statistics_of_tensors_that_were_dumped_without(
    compare: Compare, sides: tuple[GraphFolder, GraphFolder], tmp_path: Path
) -> None:
    for side, weight in zip(sides, (CHANGED, WEIGHT), strict=True):
        dense_step(side, side.iteration(), weight)
    compare(*(side.folder for side in sides), "--msprobe-csv", str(tmp_path / "tables"))
    (table,) = (tmp_path / "tables").glob("*.csv")
    with table.open() as file:
        rows = {row["NPU Name"].split("/")[-1].split(".0.0.")[0]: row for row in csv.DictReader(file)}
    row = rows["Parameter.f_weight"]
    for prefix, weight in (("NPU", CHANGED), ("Bench", WEIGHT)):
        expected = [weight.max(), weight.min(), weight.mean(), np.linalg.norm(weight)]
        reported = [float(row[f"{prefix} {name}"]) for name in ("max", "min", "mean", "l2norm")]
        assert reported == pytest.approx(expected, rel=1e-6)


def test_runs_of_which_only_statistics_were_taken_are_compared_by_these(
    compare: Compare, sides: tuple[GraphFolder, GraphFolder]
) -> None:
    row = 'Add,Default/net-Net/Add-op{0},0,0,{0},output,0,24,float32,"(2,3)",{1},-1,0,5'
    for side, greatest in zip(sides, (2.0, 4.0), strict=True):
        lines = [TITLES, row.format(1, 4.0), row.format(2, greatest)]
        (side.iteration() / "statistic.csv").write_text("\n".join(lines))
    result = compare(*(side.folder for side in sides))
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*first forward culprit: Kernel.Default_net-Net_Add-op2.0.forward *"])


def test_tensors_are_not_compared_with_statistics(compare: Compare, sides: tuple[GraphFolder, GraphFolder]) -> None:
    dense_step(sides[0], sides[0].iteration(), WEIGHT)
    (sides[1].iteration() / "statistic.csv").write_text(
        f'{TITLES}\nAdd,Add-op0,0,0,1,output,0,4,float32,"(1,)",1,1,1,1'
    )
    result = compare(*(side.folder for side in sides))
    result.stderr.fnmatch_lines(
        ["*task tensor, but *statistic.csv has task statistics; record both with the same task"]
    )


def test_one_step_may_be_chosen_of_a_run_of_several(compare: Compare, sides: tuple[GraphFolder, GraphFolder]) -> None:
    for side in sides:
        for number in range(2):
            dense_step(side, side.iteration(number), WEIGHT)
    compare(sides[0].iteration(1), sides[1].folder).assert_outcomes(passed=6)


def test_the_table_has_the_columns_of_msprobe_for_graphs(
    compare: Compare, sides: tuple[GraphFolder, GraphFolder], tmp_path: Path
) -> None:
    for side, weight in zip(sides, (CHANGED, WEIGHT), strict=True):
        dense_step(side, side.iteration(), weight)
    words = ("--msprobe-policy", "msprobe-1.2", "--msprobe-csv", str(tmp_path / "tables"))
    compare(*(side.folder for side in sides), *words)
    (table,) = (tmp_path / "tables").glob("*.csv")
    with table.open() as file:
        rows = [*csv.DictReader(file)]
    # As msprobe 26.2.0 writes them for two such folders.
    titles = (
        "NPU Name,Bench Name,NPU Dtype,Bench Dtype,NPU Tensor Shape,Bench Tensor Shape,NPU max,NPU min,NPU mean,"
        "NPU l2norm,Bench max,Bench min,Bench mean,Bench l2norm,Accuracy Reached or Not,Err_message,Cosine,EucDist,"
        "MaxAbsErr,MaxRelativeErr,One Thousandth Err Ratio,Five Thousandths Err Ratio"
    )
    assert ",".join(rows[0]) == titles
    (weight,) = (row for row in rows if row["NPU Name"].split("/")[-1].startswith("Parameter.f_weight"))
    cosine = (CHANGED * WEIGHT).sum() / np.linalg.norm(CHANGED) / np.linalg.norm(WEIGHT)
    assert float(weight["Cosine"]) == pytest.approx(cosine, abs=1e-6)
    assert (float(weight["EucDist"]), float(weight["MaxAbsErr"])) == (0.125, 0.125)
    assert weight["Accuracy Reached or Not"] == "Yes"


def test_a_failure_shows_the_lines_that_its_kernel_comes_from(
    compare: Compare, sides: tuple[GraphFolder, GraphFolder]
) -> None:
    for side, weight in zip(sides, (CHANGED, WEIGHT), strict=True):
        dense_step(side, side.iteration(), weight)
    write_graph_text(sides[0])
    result = compare(*(side.folder for side in sides), "-k", "Default_f-Dense_MatMul-op0")
    result.stdout.fnmatch_lines(["*File /home/me/net.py, line 11, in construct, y = self.f(x)"])
