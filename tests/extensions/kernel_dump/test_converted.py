"""Trees of converted kernel files compared, as msprobe's ``parse`` does by ``vc``."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from msprobe_hooks.dump.reader import open_dump
from msprobe_hooks.dump.recording_paths import find_dumps
from msprobe_hooks.errors import RecordError
from tests.support.dumps.converted import write_kernel

Compare = Callable[..., pytest.RunResult]
X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)


@pytest.fixture
def trees(tmp_path: Path) -> tuple[Path, Path]:
    """Two equal runs of two ops, one of which runs twice; their times are not the same."""
    for side, start in (("target", 1000), ("golden", 7000)):
        tree = tmp_path / side
        write_kernel(tree, "layer1-Add", start, [X, X], [X + X])
        write_kernel(tree, "layer2-Mul", start + 10, [X + X], [X * 4], kind="Mul")
        write_kernel(tree, "layer1-Add", start + 20, [X * 4, X], [X * 5])
    return tmp_path / "target", tmp_path / "golden"


def _change(tree: Path, pattern: str) -> None:
    (file,) = tree.rglob(pattern)
    np.save(file, np.load(file) + np.float32([0, 0, 0, 0.25]))


def test_kernels_find_each_other_by_op_and_order_whatever_the_times(compare: Compare, trees: tuple[Path, Path]) -> None:
    result = compare(*trees, "-v")
    result.assert_outcomes(passed=3)
    assert result.stdout.str().index("layer2-Mul.0") < result.stdout.str().index("layer1-Add.1")
    result.stdout.fnmatch_lines(["no compared call differs*"])


def test_the_kernel_that_computed_otherwise_is_the_culprit(compare: Compare, trees: tuple[Path, Path]) -> None:
    _change(trees[0], "*.1010.output.0.npy")
    _change(trees[0], "*.1020.input.0.npy")
    result = compare(*trees)
    result.assert_outcomes(passed=1, failed=2)
    result.stdout.fnmatch_lines(["first forward culprit: Kernel.layer2-Mul.0.forward (output.0: *"])


def test_files_without_folders_are_a_tree_too(compare: Compare, trees: tuple[Path, Path], tmp_path: Path) -> None:
    for tree in trees:
        (tmp_path / "flat" / tree.name).mkdir(parents=True)
        for file in tree.rglob("*.npy"):
            file.rename(tmp_path / "flat" / tree.name / file.name)
    compare(tmp_path / "flat" / "target", tmp_path / "flat" / "golden").assert_outcomes(passed=3)


def test_an_empty_tensor_has_nothing_to_be_compared(compare: Compare, trees: tuple[Path, Path]) -> None:
    for tree in trees:
        write_kernel(tree, "layer3-Shape", 9000, [np.zeros((0, 2), np.int64)], [X])
    compare(*trees).assert_outcomes(passed=4)


@pytest.mark.parametrize("flat", [False, True])
def test_no_file_of_another_kernel_is_collected(compare: Compare, trees: tuple[Path, Path], flat: bool) -> None:
    if flat:
        for tree in trees:
            for file in [*tree.rglob("*.npy")]:
                file.rename(tree / file.name)
    (trees[0] / "conftest.py").write_text("def pytest_collect_file(file_path): print('collecting', file_path.name)")
    result = compare(*trees, "-s", "--collect-only")
    seen = [line.split()[1] for line in result.outlines if line.startswith("collecting")]
    assert seen[0] == "Add.layer1-Add.3.7.1000.input.0.npy"
    assert all(".1000." in name for name in seen)


def test_a_tree_is_opened_by_the_names_of_its_files_alone(trees: tuple[Path, Path]) -> None:
    (damaged,) = trees[0].rglob("*.1010.output.0.npy")
    damaged.write_bytes(b"")
    dump = open_dump(find_dumps(trees[0])[0])
    assert [*dump.records] == [f"Kernel.{op}.forward" for op in ("layer1-Add.0", "layer2-Mul.0", "layer1-Add.1")]
    with pytest.raises(RecordError, match="incomplete"):
        dump.body("Kernel.layer2-Mul.0.forward")


def test_what_a_failure_prints_runs_its_kernel_alone(
    compare: Compare, pytester: pytest.Pytester, trees: tuple[Path, Path]
) -> None:
    _change(trees[0], "*.1010.output.0.npy")
    printed = compare(*trees).stdout.str().splitlines()
    words = next(line for line in printed if line.startswith("Run this item alone: pytest ")).split()[5:]
    pytester.runpytest(*words).assert_outcomes(failed=1)


def test_the_table_has_a_row_for_each_file_in_the_peers_columns(
    compare: Compare, trees: tuple[Path, Path], tmp_path: Path
) -> None:
    _change(trees[0], "*.1010.output.0.npy")
    compare(*trees, "--msprobe-csv", tmp_path, "--msprobe-policy", "msprobe-1.2")
    (table,) = tmp_path.glob("batch_compare_*.csv")
    with table.open(encoding="utf-8-sig", newline="") as file:
        titles, *rows = csv.reader(file)
    assert titles == [
        "NPU File Name", "Bench File Name", "Mean", "Bench Mean", "Md5 Consistency", "Max Abs Error",
        "Max Relative Error",
    ]  # fmt: skip
    assert len(rows) == 8
    (changed,) = (row for row in rows if row[4] != "True")
    assert changed[:2] == [f"Mul.layer2-Mul.3.7.{time}.output.0.npy" for time in (1010, 7010)]
    mine, golden = np.load(next(trees[0].rglob(changed[0]))), np.load(next(trees[1].rglob(changed[1])))
    expected = [mine.mean(), golden.mean(), np.abs(mine - golden).max(), (np.abs(mine - golden) / np.abs(golden)).max()]
    assert [float(changed[place]) for place in (2, 3, 5, 6)] == pytest.approx(expected, rel=1e-5, abs=1e-7)


def test_a_kernel_of_one_side_alone_costs_no_other_its_verdict(compare: Compare, trees: tuple[Path, Path]) -> None:
    write_kernel(trees[1], "only-Golden", 7005, [X], [X])
    compare(*trees).assert_outcomes(passed=3, skipped=1)


def test_a_file_that_one_side_lacks_fails_its_kernel(compare: Compare, trees: tuple[Path, Path]) -> None:
    next(trees[0].rglob("*.1010.output.0.npy")).unlink()
    result = compare(*trees)
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(["*only the golden run has this value*"])


@pytest.mark.parametrize("content", [b"", b"\x93NUMPY\x01\x00", b"\x80\x04N."])
def test_a_damaged_file_is_named_and_fails_its_kernel_alone(
    compare: Compare, trees: tuple[Path, Path], content: bytes
) -> None:
    file = next(trees[0].rglob("*.1010.output.0.npy"))
    file.write_bytes(content)
    result = compare(*trees)
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines([f"*{file.name}*"])


def test_a_link_out_of_the_tree_is_not_followed(compare: Compare, trees: tuple[Path, Path], tmp_path: Path) -> None:
    file = next(trees[0].rglob("*.1010.output.0.npy"))
    file.replace(tmp_path / "elsewhere.npy")
    file.symlink_to(tmp_path / "elsewhere.npy")
    result = compare(*trees)
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(["*leads out of it*"])


def test_slices_of_a_task_are_executions_of_their_own(compare: Compare, tmp_path: Path) -> None:
    """The names of FFTS+ that the converter's source has as examples."""
    for side, time in (("target", 1673383728093446), ("golden", 1673383728099999)):
        (tmp_path / side).mkdir()
        for thread, off in ((0, 0.0), (1, float(side == "target"))):
            name = f"Add.partition0_rank1_sgt_graph_0_Add.0.3.{time}.4.1.{thread}.0.output.0.npy"
            np.save(tmp_path / side / name, X + np.float32(off))
    result = compare(tmp_path / "target", tmp_path / "golden")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["first forward culprit: Kernel.partition0_rank1_sgt_graph_0_Add.1.forward (*"])


def test_names_that_were_too_long_are_in_a_table_next_to_the_files(compare: Compare, trees: tuple[Path, Path]) -> None:
    for tree in trees:
        (file,) = tree.rglob("Mul*.output.0.npy")
        file.with_name("mapping.csv").write_text(f"{'0f' * 16}.npy,{file.name}\n")
        file.rename(file.with_name(f"{'0f' * 16}.npy"))
    compare(*trees).assert_outcomes(passed=3)
    next(trees[0].rglob("mapping.csv")).unlink()
    compare(*trees).stderr.fnmatch_lines(["*0f.npy: the number replaces a name that was too long, and no mapping.csv*"])


def test_a_file_with_another_name_is_named_with_what_to_do(compare: Compare, trees: tuple[Path, Path]) -> None:
    np.save(trees[0] / "weights.npy", X)
    result = compare(*trees)
    result.stderr.fnmatch_lines(["*weights.npy: not the name of a converted kernel file,*move the file out*"])


def test_a_check_of_such_a_tree_says_what_can_be_done(pytester: pytest.Pytester, trees: tuple[Path, Path]) -> None:
    result = pytester.runpytest("--msprobe-dump", str(trees[0]), "--msprobe-device", "cpu")
    result.stderr.fnmatch_lines(["*do not say how their kernels were called*--msprobe-compare*"])
