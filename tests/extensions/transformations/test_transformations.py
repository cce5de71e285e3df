"""``--msprobe-transform`` and its hook: values that are turned before they are compared, in every report."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from msprobe_hooks.dump.reader import read_dump
from pytest_msprobe import compare_dumps
from pytest_msprobe.extensions.transformations.transformations import read_transformations
from pytest_msprobe.modes.compare.dump_pair import DumpPair
from pytest_msprobe.modes.compare.judging.policy import load_policy
from pytest_msprobe.modes.compare.rows import ComparedCall
from tests.support.dumps.dump_files import forward, tensor_around, write_dump
from tests.support.dumps.recorded_arrays import RECORD, RNG, X, recorded

Compare = Callable[..., pytest.RunResult]
Q = np.linalg.qr(RNG.standard_normal((4, 4)))[0].astype(np.float32)


@pytest.fixture
def rotated(tmp_path: Path) -> Callable[..., tuple[Path, Path, Path]]:
    """Write a run whose output is rotated, its golden run, and the file that rotates golden."""

    def make(task: str = "tensor", error: float = 0.0, steps: str = "- rotate: {by: Q.npy}") -> tuple[Path, Path, Path]:
        turned = X @ Q
        turned[1, 2] += error
        file = tmp_path / "t.yaml"
        np.save(tmp_path / "Q.npy", Q)
        file.write_text(f"- match: Module.*.output.0\n  side: golden\n  steps:\n    {steps}\n")
        return recorded(tmp_path / "target", [X], turned, task), recorded(tmp_path / "golden", [X], X, task), file

    return make


def compared(target: Path, golden: Path, file: Path, **options: Any) -> ComparedCall:
    pair = DumpPair(
        0,
        read_dump(target),
        read_dump(golden),
        policy=load_policy("default"),
        transformations=read_transformations(file),
        **options,
    )
    return pair.compare(next(iter(pair.orders)))


def test_a_rotated_output_agrees_and_its_row_says_what_was_done(rotated: Any) -> None:
    call = compared(*rotated(), histograms=True)
    row = call.rows[-1]
    assert (call.outcome, row.transformed) == ("pass", ("golden rotated by Q.npy",))
    assert row.golden is not None
    assert row.golden.statistics == pytest.approx([(X @ Q).max(), (X @ Q).min(), (X @ Q).mean(), np.linalg.norm(X)])
    # Units in the last place of a computed value say nothing.
    assert "max_ulp_error" not in row.metrics
    assert sum(row.histogram) == X.size
    assert call.rows[0].transformed == ()


def test_a_wrong_element_of_a_rotated_output_is_found_in_its_place(rotated: Any) -> None:
    call = compared(*rotated(error=0.1))
    assert (call.outcome, call.rows[-1].worst) == ("fail", (1, 2))


def test_of_statistics_a_rotation_leaves_the_norm_to_be_compared(rotated: Any) -> None:
    call = compared(*rotated("statistics"))
    row = call.rows[-1]
    assert (call.outcome, row.outcome) == ("pass", "pass")
    assert set(row.metrics) == {"norm_diff", "norm_rel_diff", "scaled_error"}
    said = "compared by the norm alone, as transformations change its other statistics: golden rotated by Q.npy"
    assert row.messages == (said,)
    assert compared(*rotated("statistics", error=5)).outcome == "fail"


def test_of_statistics_a_permutation_compares_all(rotated: Any, tmp_path: Path) -> None:
    _, golden, file = rotated("statistics", steps="- transpose: [0, 1]")
    row = compared(recorded(tmp_path / "other", [X], X.T, "statistics"), golden, file).rows[-1]
    assert (row.outcome, row.messages, row.golden and row.golden.shape) == ("pass", (), (4, 3))
    wrong = compared(recorded(tmp_path / "wrong", [X], X.T * 2, "statistics"), golden, file)
    assert wrong.outcome == "fail"


def test_what_statistics_do_not_survive_is_not_compared_and_counted(compare: Compare, rotated: Any) -> None:
    target, golden, file = rotated("statistics", steps="- slice: {axis: 0, stop: 2}")
    result = compare(target, golden, "--msprobe-transform", str(file))
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines([f"1 value not compared, as transformations change its statistics: {RECORD} output.0"])


@pytest.mark.parametrize("task", ["tensor", "statistics"])
def test_a_step_that_does_not_fit_fails_the_call_with_file_line_and_value(rotated: Any, task: str) -> None:
    target, golden, file = rotated(task, steps="- permute: [0, 2, 1]")
    row = compared(target, golden, file).rows[-1]
    assert row.outcome == "fail"
    assert row.messages == (f"{file}, line 1: an order of 3 axes does not fit [3, 4] ({RECORD}.output.0)",)


@pytest.mark.parametrize("task", ["tensor", "statistics"])
@pytest.mark.parametrize("policy", ["default", "msprobe-1.2", "msprobe-26"])
def test_other_shapes_after_the_steps_fail_by_every_policy(rotated: Any, task: str, policy: str) -> None:
    target, golden, file = rotated(task, steps="- transpose: [0, 1]")
    pair = DumpPair(
        0,
        read_dump(target),
        read_dump(golden),
        policy=load_policy(policy),
        transformations=read_transformations(file),
    )
    row = pair.compare(RECORD).rows[-1]
    assert row.outcome == "fail"
    assert row.messages[0] == f"{file}, line 1: the target is [3, 4] and golden is [4, 3] after it; correct the steps"


def test_integers_are_dequantised_by_a_scale_of_the_call_and_judged_as_coarsely_as_they_are(tmp_path: Path) -> None:
    scale = (np.abs(X).max(1, keepdims=True) / 127).astype(np.float32)
    file = tmp_path / "t.yaml"
    entry = (
        "- {match: '*.output.0', side: target, steps: [{dequantise: {scale: {value: input.0}}}], precision: float16}"
    )
    file.write_text(entry)
    stored = np.round(X / scale).astype(np.int8)
    target, golden = recorded(tmp_path / "target", [scale], stored), recorded(tmp_path / "golden", [scale], X)
    row = compared(target, golden, file).rows[-1]
    assert (row.outcome, row.transformed) == ("pass", ("target dequantised by input.0, judged as float16",))
    assert row.metrics["max_abs_err"] == pytest.approx(np.abs(stored * scale - X).max(), rel=1e-4)
    stored[0, 0] += 5
    assert compared(recorded(tmp_path / "wrong", [scale], stored), golden, file).outcome == "fail"


def test_an_entry_without_effect_is_named(compare: Compare, rotated: Any) -> None:
    target, golden, file = rotated()
    file.write_text(file.read_text() + "- {match: Module.k.*, side: golden, steps: [{transpose: [0, 1]}]}\n")
    result = compare(target, golden, "--msprobe-transform", str(file))
    result.stdout.fnmatch_lines(
        [
            "msprobe: transformed first: 2 entries",
            f"transformation without effect: {file}, line 5: no tensor of the golden run is named Module.k.*",
        ]
    )
    result.stdout.no_fnmatch_line("*without effect*line 1:*")


def test_reports_say_what_was_done(compare: Compare, rotated: Any, tmp_path: Path) -> None:
    target, golden, file = rotated(error=0.1)
    options = ("--msprobe-csv", str(tmp_path / "r"), "--msprobe-html", str(tmp_path / "r" / "page.html"))
    result = compare(target, golden, "--msprobe-transform", str(file), *options)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "output.0: scaled error *; golden rotated by Q.npy",
            f"Run this item alone: * --msprobe-transform {file}*",
            f"first forward culprit: {RECORD} (output.0: * golden rotated by Q.npy)",
        ]
    )
    (table,) = (tmp_path / "r").glob("*.csv")
    rows = list(csv.DictReader(table.read_text().splitlines()))
    assert [row["Transformed"] for row in rows] == ["", "golden rotated by Q.npy"]
    assert "golden rotated by Q.npy" in (tmp_path / "r" / "page.html").read_text()


def test_the_quick_question_turns_values_first(compare: Compare, rotated: Any) -> None:
    target, golden, file = rotated()
    compare(target, golden, "--msprobe-transform", str(file), "-omsprobe_compare_quick=true").assert_outcomes(passed=1)
    # Equal byte for byte, and other values once one of them is turned.
    compare(golden, golden, "--msprobe-transform", str(file), "-omsprobe_compare_quick=true").assert_outcomes(failed=1)


def test_another_matrix_is_another_run_for_a_journal(compare: Compare, rotated: Any, tmp_path: Path) -> None:
    target, golden, file = rotated()
    journal = str(tmp_path / "run.journal")
    options = ("--msprobe-transform", str(file))
    compare(target, golden, *options, "--msprobe-journal", journal).assert_outcomes(passed=1)
    np.save(tmp_path / "Q.npy", np.eye(4, dtype=np.float32))
    result = compare(target, golden, *options, "--msprobe-resume", journal)
    result.stderr.fnmatch_lines(["*was made from other dumps, or they have changed since*"])


def test_a_function_of_the_hook_turns_values(compare: Compare, pytester: pytest.Pytester, rotated: Any) -> None:
    target, golden, _ = rotated()
    pytester.makeconftest(
        """
        import numpy, torch

        def rotate(tensor):
            return tensor @ torch.from_numpy(numpy.load("Q.npy"))

        def broken(tensor):
            return tensor.numpy()

        def pytest_msprobe_transform(registry):
            registry.add("Module.*.output.0", "golden", rotate, says="rotated as the engine does")
            registry.add("Module.*.input.0", "target", broken)
        """
    )
    result = compare(target, golden)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["input.0: pytest_msprobe_transform, Module.*.input.0: it returned a ndarray, not a tensor (*input.0)*"]
    )
    result.stdout.no_fnmatch_line("*output.0: *")


def test_programs_pass_the_file(rotated: Any) -> None:
    target, golden, file = rotated()
    assert [record.outcome for record in compare_dumps(target, golden)] == ["fail"]
    assert [record.outcome for record in compare_dumps(target, golden, transform=file)] == ["pass"]


@pytest.mark.slow
def test_workers_turn_values_alike(compare: Compare, rotated: Any) -> None:
    target, golden, file = rotated()
    compare(target, golden, "--msprobe-transform", str(file), "-n", "2", apart=True).assert_outcomes(passed=1)


def test_the_option_needs_a_comparison_and_a_file(pytester: pytest.Pytester, compare: Compare, rotated: Any) -> None:
    target, golden, _ = rotated()
    pytester.runpytest("--msprobe-transform", "t.yaml").stderr.fnmatch_lines(["*no effect without --msprobe-compare*"])
    compare(target, golden, "--msprobe-transform", "none.yaml").stderr.fnmatch_lines(["*'none.yaml': no such file*"])


def test_values_of_another_framework_are_turned(tmp_path: Path) -> None:
    file = tmp_path / "t.yaml"
    file.write_text("- {match: Cell.*.output.0, side: target, steps: [{transpose: [0, 1]}]}\n")
    record = "Cell.q.Dense.forward.0"
    target = recorded(tmp_path / "target", [X], X.T.copy(), record=record, framework="mindspore")
    golden = recorded(tmp_path / "golden", [X], X, record="Module.q.Linear.forward.0")
    wrong = recorded(tmp_path / "wrong", [X], 2 * X.T, record=record, framework="mindspore")
    mapping = tmp_path / "cells.yaml"
    mapping.write_text(f"data:\n  {record}.output.0: Module.q.Linear.forward.0.output.0\n")
    outcomes = [
        [each.outcome for each in compare_dumps(side, golden, mapping=mapping, transform=file)]
        for side in (target, wrong)
    ]
    assert outcomes == [["pass"], ["fail"]]


def test_a_resumed_run_keeps_what_was_turned(compare: Compare, rotated: Any, tmp_path: Path) -> None:
    target, golden, file = rotated()
    journal, options = str(tmp_path / "run.journal"), ("--msprobe-transform", str(file))
    compare(target, golden, *options, "--msprobe-journal", journal).assert_outcomes(passed=1)
    result = compare(target, golden, *options, "--msprobe-resume", journal)
    result.stdout.fnmatch_lines(["*1 equal enough*"])


def test_values_of_merged_ranks_are_turned_by_their_statistics(compare: Compare, tmp_path: Path) -> None:
    square, long = tensor_around(4, 4), tensor_around(8, 2)
    for rank in (0, 1):
        write_dump(tmp_path / "target" / "step0" / f"rank{rank}", {"Torch.relu.0.forward": forward(square)})
    ours = {"Torch.relu.0.forward": forward(square, output=[long])}
    write_dump(tmp_path / "golden" / "step0" / "rank0", ours)
    file = tmp_path / "t.yaml"
    file.write_text("- {match: Torch.relu.*.output.0, side: golden, steps: [{reshape: [4, 4]}]}\n")
    sides = (tmp_path / "target", tmp_path / "golden", "--msprobe-target-layout", "tp=2")
    compare(*sides).assert_outcomes(failed=1)
    compare(*sides, "--msprobe-transform", str(file)).assert_outcomes(passed=1)
