from __future__ import annotations

import math
from dataclasses import asdict

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from msprobe_standards import (
    Bounds,
    Metrics,
    Policy,
    RecordedOutput,
    Standard,
    Ulp,
    judge,
    judge_recorded,
    measure,
    msprobe_bounds,
    standard,
)


def recorded(target: torch.Tensor, golden: torch.Tensor, by: Standard | None = None) -> RecordedOutput:
    own = by and by.bounds(target.dtype)
    numbers = dict(measure(target, golden, bounds=own)) if own else {}
    return RecordedOutput(target.dtype, target.numel(), dict(measure(target, golden)), own, numbers)


def noisy(golden: torch.Tensor, dtype: torch.dtype, noise: float, seed: int) -> torch.Tensor:
    unit = torch.finfo(dtype).eps / 2
    generator = torch.Generator().manual_seed(seed)
    error = torch.randn(golden.shape, generator=generator, dtype=golden.dtype)
    return (golden * (1 + noise * unit * error)).to(dtype)


DTYPES = st.sampled_from([torch.float32, torch.float16, torch.bfloat16])
POLICIES = [Policy.load(name) for name in ("default", "msprobe-1.2", "msprobe-26")]
NOISES = st.sampled_from([0.0, 1.0, 5.0, 30.0, 300.0])


@given(
    dtype=DTYPES, ours=NOISES, theirs=NOISES, api=st.sampled_from(["softmax", "matmul", "exp", "add", "relu", "sum"])
)
def test_recorded_numbers_judge_as_the_tensors_that_they_were_measured_on(
    dtype: torch.dtype, ours: float, theirs: float, api: str
) -> None:
    golden = torch.randn(20, 7, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    target, baseline = noisy(golden, dtype, ours, 1), noisy(golden, dtype, theirs, 2)
    for policy in POLICIES:
        by = policy.select(api, output_dtype=dtype, recorded_baseline=True)
        wanted = judge(target, golden, standard=by, recorded=lambda _, tensor=baseline: tensor)
        rows = recorded(target, golden, by), recorded(baseline, golden, by)
        with_row = judge(target, golden, standard=by, recorded=rows[1].metrics_for)
        assert with_row == wanted
        from_rows = judge_recorded(rows[0], standard=by, recorded=rows[1].metrics_for)
        assert from_rows is not None
        assert (from_rows.outcome, from_rows.margin) == (wanted.outcome, wanted.margin)


def test_the_recorded_numbers_take_the_place_of_the_baseline() -> None:
    golden = torch.randn(64, 64, dtype=torch.float64)
    sloppy, exact = noisy(golden, torch.float32, 300, 1), golden.float()
    numbers = recorded(exact, golden)
    assert judge(sloppy, golden, standard="benchmark", baseline=sloppy).outcome == "pass"
    assert judge(sloppy, golden, standard="benchmark", baseline=sloppy, recorded=numbers.metrics_for).outcome == "fail"


def test_a_missing_row_leaves_the_baseline_that_was_computed() -> None:
    golden = torch.randn(64, 64, dtype=torch.float64)
    sloppy = noisy(golden, torch.float32, 300, 1)
    assert judge(sloppy, golden, standard="benchmark", baseline=sloppy, recorded=lambda _: None).outcome == "pass"


def test_the_row_is_asked_for_only_where_the_verdict_depends_on_it() -> None:
    def never(_: Standard) -> Metrics | None:
        raise AssertionError("asked")

    golden = torch.randn(64, 64, dtype=torch.float64)
    assert judge(golden.float() * (1 + 2**-24), golden, standard="benchmark", recorded=never).outcome == "pass"


def test_numbers_that_other_lines_counted_serve_no_standard() -> None:
    golden = torch.randn(64, dtype=torch.float64)
    row = recorded(golden.float(), golden, Ulp(max_ulp=3))
    assert row.metrics_for(Ulp(max_ulp=3)) is not None
    assert row.metrics_for(Ulp(max_ulp=4)) is None
    assert judge_recorded(recorded(noisy(golden, torch.float32, 9, 1), golden), standard=Ulp(max_ulp=4)) is None


def test_own_bounds_survive_being_written_down() -> None:
    bounds = Ulp(max_ulp=3, scale_floor=1).bounds(torch.float16)
    assert bounds != msprobe_bounds(torch.float16)
    assert Bounds(**asdict(bounds)) == bounds


def test_nan_shared_with_the_cpu_is_right_whatever_was_recorded() -> None:
    by = Policy.load("default").select("exp", output_dtype=torch.float16, recorded_baseline=True)
    golden = torch.rand(64, dtype=torch.float64)
    target = golden.half()
    target[3] = math.nan
    row = recorded(golden.half(), golden, by).metrics_for
    assert judge(target, golden, standard=by, recorded=row).outcome == "fail"
    assert judge(target, golden, standard=by, recorded=row, baseline=target).outcome == "pass"
    elsewhere = target.roll(1)
    assert judge(target, golden, standard=by, recorded=row, baseline=elsewhere).outcome == "fail"


def test_recorded_nan_elements_excuse_no_others() -> None:
    by = Policy.load("default").select("exp", output_dtype=torch.float16, recorded_baseline=True)
    golden = torch.rand(64, dtype=torch.float64)
    theirs = golden.half()
    theirs[3] = math.nan
    row = recorded(theirs, golden, by).metrics_for
    for wrong in (golden.half().roll(1), theirs.roll(1)):
        assert judge(wrong, golden, standard=by, recorded=row).outcome == "fail"


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_baseline_error_of_nan_or_inf_allows_nothing(value: float) -> None:
    golden = torch.rand(64, dtype=torch.float64)
    target = recorded(noisy(golden, torch.float16, 90, 1), golden)
    assert all(value > 0 for value in [target.metrics["rmse"]])
    base = RecordedOutput(torch.float16, 64, {**recorded(golden.half(), golden).metrics, "max_rel_error": value})
    verdict = judge_recorded(target, standard=standard("msprobe_benchmark"), recorded=base.metrics_for)
    assert verdict is not None
    assert verdict.outcome == "fail"


def test_integers_are_judged_by_equality_and_empty_outputs_pass() -> None:
    whole = torch.arange(5)
    by = standard("benchmark")
    equal = judge_recorded(recorded(whole, whole), standard=by)
    other = judge_recorded(recorded(whole + 1, whole), standard=by)
    empty = judge_recorded(RecordedOutput(torch.float32, 0, {}), standard=by)
    assert [verdict and verdict.outcome for verdict in (equal, other, empty)] == ["pass", "fail", "pass"]


@given(seed=st.integers(0, 2**16), ours=st.floats(1.0, 1e4), theirs=st.floats(1.0, 1e4))
def test_a_recorded_tensor_judges_as_that_baseline_does(seed: int, ours: float, theirs: float) -> None:
    state = torch.Generator().manual_seed(seed)
    golden = torch.rand(50, dtype=torch.float64, generator=state) + 1
    target, elsewhere = (
        (golden * (1 + size * 2**-24 * torch.randn(50, dtype=torch.float64, generator=state))).float()
        for size in (ours, theirs)
    )
    target[3] = elsewhere[3] = torch.nan
    by_tensor = judge(target, golden, standard="benchmark", baseline=golden.float(), recorded=lambda _: elsewhere)
    assert by_tensor == judge(target, golden, standard="benchmark", baseline=elsewhere)


@pytest.mark.parametrize("name", ["max_ulp_error", "ulp_error_proportion", "nonfinite_mismatch"])
@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_a_number_of_a_file_that_is_not_finite_fails_its_output(name: str, number: float) -> None:
    numbers = {"max_ulp_error": 3.0, "ulp_error_proportion": 0.5, "nonfinite_mismatch": 0.0, name: number}
    verdict = Ulp().decide(Metrics(numbers, torch.float32, 6), None)
    assert verdict.outcome == "fail"
    assert "of 6 elements" in verdict.reason
