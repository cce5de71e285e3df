"""Agreement with numbers and verdicts that were recorded from mindstudio-probe 1.2.2."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
import torch

import msprobe_standards
from msprobe_standards import Policy, judge, measure

if TYPE_CHECKING:
    from tests.support.replays.oracle import OracleCase

    Oracle = Callable[[str], list[OracleCase]]

STANDARDS = ("absolute_threshold", "accumulative_error", "benchmark", "binary_consistency", "thousandth", "ulp")
API_OF = {"absolute_threshold": "add", "accumulative_error": "test_api", "benchmark": "softmax"} | {
    "binary_consistency": "sort",
    "thousandth": "conv2d",
    "ulp": "matmul",
}
WORDS = {"pass": "pass", "warn": "Warning", "fail": "error", "skip": "SKIP"}


def near(measured: float, expected: Any) -> bool:
    expected = float(expected)
    both_nan = math.isnan(measured) and math.isnan(expected)
    return both_nan or measured == expected or math.isclose(measured, expected, rel_tol=1e-6)


@pytest.mark.parametrize("standard", STANDARDS)
def test_every_metric_has_its_plain_value(oracle: Oracle, standard: str) -> None:
    judge_by = msprobe_standards.standard("accumulative_error" if standard == "accumulative_error" else "cascade")
    wrong, compared = [], 0
    for case in oracle(standard):
        if case.target.shape != case.golden.shape or not case.fields.get("right"):
            continue
        metrics = measure(case.target, case.golden, bounds=judge_by.bounds(case.target.dtype))
        for name, expected in case.fields["right"].items():
            compared += 1
            if not near(metrics[name], expected):
                wrong.append(f"{case.name}: {name} is {metrics[name]!r}, right is {expected!r}")
    assert compared > 200
    assert wrong == []


def test_cosine_and_greatest_error_are_those_of_the_single_machine_check(oracle: Oracle) -> None:
    wrong, compared = [], 0
    for case in oracle("benchmark"):
        recorded = case.fields["run_ut"].get("metrics", {})
        if case.corrections or case.target.numel() < 2 or "nan" in recorded.values() or "inf" in recorded.values():
            continue
        metrics = measure(case.target, case.golden)
        for name in ("cosine_sim", "max_abs_err"):
            # In half precision the peer computes in float32.
            if isinstance(recorded.get(name), float) and metrics["nonfinite_mismatch"] == 0:
                compared += 1
                if not math.isclose(metrics[name], recorded[name], rel_tol=1e-5, abs_tol=1e-6):
                    wrong.append(f"{case.name}: {name} is {metrics[name]!r}, recorded {recorded[name]!r}")
    assert compared > 200
    assert wrong == []


@pytest.mark.parametrize("standard", STANDARDS)
def test_the_single_machine_check_agrees_and_is_right_where_the_peer_is_not(oracle: Oracle, standard: str) -> None:
    policy = Policy.load("msprobe-1.2")
    wrong = []
    for case in oracle(standard):
        by = policy.select("any", output_dtype=case.target.dtype)
        verdict = judge(case.target, case.golden, standard=by)
        expected = case.corrections.get("run_ut.verdict", case.fields["run_ut"]["verdict"])
        # The list of corrections expects the pass of matched NaN and inf; bfloat16 rounding alone makes it a warning.
        if case.fields["kind"] == "mixed_matched_nonfinite" and case.fields["dtype"] == "bfloat16":
            expected = "Warning"
        if WORDS[verdict.outcome] != expected:
            wrong.append(f"{case.name}: {verdict}, expected {expected}")
    assert wrong == []


@pytest.mark.parametrize("standard", STANDARDS)
def test_the_comparison_with_a_recorded_baseline_agrees(oracle: Oracle, standard: str) -> None:
    policy = Policy.load("msprobe-1.2")
    wrong, compared = [], 0
    for case in oracle(standard):
        expected = (case.fields.get("gpu_compare") or {}).get("compare_result")
        if expected in (None, "absent") or not case.target.numel() or "peer_bug" in case.fields:
            continue
        # The peer skips integers that it cannot compare; they are compared here.
        if expected == "SKIP" and not case.target.is_floating_point():
            continue
        # One NaN among right values fails here; in the peer one element in a thousand may be anything.
        if case.fields["kind"] == "one_dev_nan_of_1000" and expected == "pass":
            expected = "error"
        by = policy.select(API_OF[standard], output_dtype=case.target.dtype, recorded_baseline=True)
        verdict = judge(case.target, case.golden, standard=by, baseline=case.baseline)
        compared += 1
        if WORDS[verdict.outcome] != expected:
            wrong.append(f"{case.name}: {verdict}, expected {expected}")
    assert compared > 100
    assert wrong == []


@pytest.mark.parametrize("standard", ["absolute_threshold", "benchmark", "ulp"])
def test_false_passes_of_the_comparison_are_caught(oracle: Oracle, standard: str) -> None:
    policy = Policy.load("msprobe-1.2")
    caught = 0
    for case in oracle(standard):
        if case.corrections.get("gpu_compare.compare_result") == "error":
            by = policy.select(API_OF[standard], output_dtype=case.target.dtype, recorded_baseline=True)
            assert judge(case.target, case.golden, standard=by, baseline=case.baseline).outcome == "fail", case.name
            caught += 1
    assert caught


def test_bfloat16_rounding_of_small_values_passes_the_absolute_threshold(oracle: Oracle) -> None:
    cases = [case for case in oracle("absolute_threshold") if "gpu_compare.compare_result" in case.corrections]
    rounded = [case for case in cases if case.corrections["gpu_compare.compare_result"] == "pass"]
    assert rounded
    for case in rounded:
        assert judge(case.target, case.golden, standard="absolute_threshold").outcome == "pass", case.name


def test_wrong_values_where_nothing_was_dropped_fail(oracle: Oracle) -> None:
    case = next(case for case in oracle("dropout") if case.corrections)
    by = Policy.load("default").select("softmax", output_dtype=torch.float32)
    assert judge(case.target, case.golden, standard=by).outcome == "fail"
