"""Metrics of the user's own: columns of every report, and requirements of a policy."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from pytest_msprobe import compare_dumps
from pytest_msprobe.errors import OptionError
from pytest_msprobe.modes.compare.judging.policy import RequiredMetric, load_policy
from pytest_msprobe.modes.compare.rows import Row
from tests.support.dumps.recorded_arrays import RECORD, X, recorded

Compare = Callable[..., pytest.RunResult]
POLICY = """
rule: scaled
limits: {float64: [1, 2], float32: [1, 2], float16: [1, 2], bfloat16: [1, 2], float8: [1, 2]}
"""
CONFTEST = """
def mean_shift(target, golden):
    return (target - golden).mean().abs()

def broken(target, golden):
    return 1 / 0

def pytest_msprobe_register_compare_metrics(registry):
    registry.add("mean_shift", mean_shift)
    registry.add("broken", broken)
"""


@pytest.fixture
def shifted(tmp_path: Path) -> tuple[Path, Path]:
    """Write two runs whose outputs differ by 0.25 everywhere."""
    return recorded(tmp_path / "target", [X], X + 0.25), recorded(tmp_path / "golden", [X], X)


def policy(folder: Path, *required: str) -> str:
    path = folder / "policy.yaml"
    path.write_text(POLICY + f"require: [{', '.join(required)}]\n")
    return str(path)


def test_a_metric_is_a_column_and_a_requirement_fails_with_its_name(
    compare: Compare, pytester: pytest.Pytester, shifted: tuple[Path, Path], tmp_path: Path
) -> None:
    pytester.makeconftest(CONFTEST)
    page = tmp_path / "page.html"
    options = ("--msprobe-csv", str(tmp_path / "r"), "--msprobe-html", str(page))
    result = compare(*shifted, "--msprobe-policy", policy(tmp_path, "mean_shift <= 0.1"), *options)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "output.0: *mean_shift 0.25, required mean_shift <= 0.1",
            f"first forward culprit: {RECORD} (output.0: mean_shift 0.25, required mean_shift <= 0.1)",
            "2 values without metric broken: ZeroDivisionError: division by zero: *",
        ]
    )
    result.stdout.no_fnmatch_line("*Traceback*")
    (table,) = (tmp_path / "r").glob("*.csv")
    assert [(row["mean_shift"], row["broken"]) for row in csv.DictReader(table.read_text().splitlines())] == [
        ("0.0", "nan"),
        ("0.25", "nan"),
    ]
    assert '"mean_shift"' in page.read_text()


@pytest.mark.parametrize(
    ("value", "required", "is_right"),
    [
        (0.1, ("<=", 0.1), True),
        (0.1, ("<", 0.1), False),
        (0.9, (">=", 0.95), False),
        (math.nan, (">=", 0.95), False),
        (math.inf, ("<=", 1e300), False),
    ],
)
def test_a_requirement_is_a_relation_that_nan_never_meets(
    value: float, required: tuple[str, float], is_right: bool
) -> None:
    row = Row(group="output", place="output.0", target=None, golden=None, outcome="pass", metrics={"m": value})
    assert (RequiredMetric("m", *required).judge(row).outcome == "pass") is is_right


def test_a_requirement_of_values_that_lack_the_metric_changes_nothing() -> None:
    row = Row(group="input", place="input.0", target=None, golden=None, outcome="pass")
    assert RequiredMetric("m", "<=", 0).judge(row) is row


@pytest.mark.parametrize(
    ("required", "problem"),
    [
        ("mean_shift <= 1", "unknown metric 'mean_shift'.*pytest_msprobe_register_compare_metrics"),
        ("max_abs_er <= 1", "unknown metric 'max_abs_er'; did you mean 'max_abs_err'"),
        ("max_abs_err = 1", "a metric, one of <= >= < >, and a number"),
        ("max_abs_err <= nan", "a metric, one of <= >= < >, and a number"),
        ("7", "a metric, one of"),
    ],
)
def test_a_wrong_requirement_is_one_line(tmp_path: Path, required: str, problem: str) -> None:
    with pytest.raises(ValueError, match=f"policy.yaml: require: .*{problem}"):
        load_policy(policy(tmp_path, required))


def test_a_metric_of_a_program_sees_narrow_floats_widened(tmp_path: Path) -> None:
    seen: list[torch.dtype] = []

    def look(target: torch.Tensor, golden: torch.Tensor) -> float:
        seen.append(target.dtype)
        return 1.0

    half = X.astype(np.float16)
    target, golden = recorded(tmp_path / "target", [X], half), recorded(tmp_path / "golden", [X], half)
    (record,) = compare_dumps(target, golden, metrics={"look": look})
    assert record.call is not None
    assert [row.metrics["look"] for row in record.call.rows] == [1.0, 1.0]
    assert seen == [torch.float32, torch.float32]


@pytest.mark.parametrize("name", ["cosine_sim", "two words"])
def test_a_name_that_is_taken_or_none_is_refused(shifted: tuple[Path, Path], name: str) -> None:
    with pytest.raises(OptionError, match=f"metrics: metric '{name}'"):
        next(compare_dumps(*shifted, metrics={name: lambda target, golden: 0.0}))


def test_what_statistics_cannot_show_is_said_once(compare: Compare, pytester: pytest.Pytester, tmp_path: Path) -> None:
    pytester.makeconftest(CONFTEST)
    sides = [recorded(tmp_path / side, [X], X, "statistics") for side in ("target", "golden")]
    result = compare(*sides, "--msprobe-policy", policy(tmp_path, "mean_shift <= 0.1", "norm_rel_diff <= 0.1"))
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        [
            "not required, as dumps of statistics have no mean_shift: mean_shift <= 0.1",
            "not measured, as dumps of statistics hold no tensors: mean_shift, broken",
        ]
    )
