"""What standards let an element err by, and which outputs get a map."""

from __future__ import annotations

import pytest
import torch

from msprobe_standards import Verdict
from msprobe_standards import standard as standard_named
from pytest_msprobe.engine.replay.judging.outputs import allowance_of, with_error_maps
from pytest_msprobe.engine.values.tolerance import Allowance
from pytest_msprobe.results.result import OutputResult

_ULP = standard_named("ulp")
_U32 = 2.0**-24


@pytest.mark.parametrize(
    ("name", "dtype", "metrics", "limits", "expected"),
    [
        ("ulp", torch.float32, {}, {"max_ulp_error": 2.0}, Allowance(ulps=2)),
        ("binary_consistency", torch.float32, {}, {"cast_error_rate": 0.0}, Allowance(ulps=0.5)),
        ("binary_consistency", torch.int64, {}, {"cast_error_rate": 0.0}, Allowance(ulps=0.5)),
        ("absolute_threshold", torch.float16, {}, {"rel_err_ratio": 0.0}, Allowance(absolute=2**-16, relative=2**-10)),
        ("accumulative_error", torch.float16, {}, {"rel_err_ratio": 0.0}, Allowance(absolute=2**-8, relative=2**-8)),
        ("thousandth", torch.float32, {}, {"rel_err_thousandth": 0.999}, Allowance(relative=1e-3)),
    ],
)
def test_an_element_may_err_by_what_its_standard_limits(
    name: str, dtype: torch.dtype, metrics: dict[str, float], limits: dict[str, float], expected: Allowance
) -> None:
    verdict = Verdict("fail", name, "", metrics, limits)

    assert allowance_of(verdict, standard_named(name), dtype, torch.ones(3)) == expected


def test_of_two_scaled_errors_the_one_that_is_farther_over_its_limit_counts() -> None:
    metrics = {"max_scaled_error": 20.0, "rms_scaled_error": 8.0}
    limits = {"max_scaled_error": 10.0, "rms_scaled_error": 2.0}
    verdict = Verdict("fail", "benchmark", "", metrics, limits)

    found = allowance_of(verdict, standard_named("benchmark"), torch.float32, torch.tensor([3.0, -5.0, torch.inf]))

    # Twice the mean: honest elements scatter around it.
    assert found == Allowance(scaled=4 * _U32, scale=4.0)


def test_the_worst_four_outputs_that_fail_have_a_map() -> None:
    golden = {str(place): torch.ones(2, 2, dtype=torch.float64) for place in range(7)}
    target = {path: tensor.float() + 1 for path, tensor in golden.items()}
    results = [
        OutputResult(str(place), Verdict("pass" if place == 3 else "fail", "ulp", margin=float(place)))
        for place in range(7)
    ]

    mapped = with_error_maps(results, target, golden, {"6": golden["6"].float()}, lambda _: _ULP)

    assert [result.path for result in mapped if result.error_map is not None] == ["2", "4", "5", "6"]
    assert mapped[6].error_map is not None
    assert mapped[6].error_map.baseline_histogram[0] == 4
