from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch

import msprobe_standards
from msprobe_standards import Metrics, Standard, Verdict, judge, register_standard, standard


@pytest.fixture
def golden() -> torch.Tensor:
    return torch.rand(2000, dtype=torch.float64, generator=torch.Generator().manual_seed(5)) + 1


def steps_off(golden: torch.Tensor, steps: int, count: int) -> torch.Tensor:
    target = golden.float()
    target.view(torch.int32)[:count] += steps
    return target


@pytest.mark.parametrize(
    ("steps", "max_ulp", "outcome"), [(2, 3, "pass"), (2, 1, "fail"), (40, 41, "pass"), (40, 39, "fail")]
)
def test_ulp_counts_steps_of_the_format(golden: torch.Tensor, steps: int, max_ulp: float, outcome: str) -> None:
    assert judge(steps_off(golden, steps, 1), golden, standard=standard("ulp", max_ulp=max_ulp)).outcome == outcome


def test_ulp_may_allow_a_share_of_elements(golden: torch.Tensor) -> None:
    target = steps_off(golden, 100, 10)
    assert judge(target, golden, standard=standard("ulp", max_share=0.005)).outcome == "pass"
    assert judge(target, golden, standard=standard("ulp", max_share=0.004)).outcome == "fail"


def test_ulp_forgives_cancellation_down_to_the_scale_floor() -> None:
    golden = torch.tensor([1.0, 1.0, 1e-6], dtype=torch.float64)
    target = torch.tensor([1.0, 1.0, 1e-6 + 6e-8])
    assert judge(target, golden, standard="ulp").outcome == "fail"
    assert judge(target, golden, standard=standard("ulp", scale_floor=1)).outcome == "pass"


def test_ulp_catches_flushed_subnormals() -> None:
    golden = torch.tensor([1.0, 3e-40], dtype=torch.float64)
    assert judge(golden.float(), golden, standard="ulp").outcome == "pass"
    assert judge(torch.tensor([1.0, 0.0]), golden, standard="ulp").outcome == "fail"


def test_binary_consistency_rounds_the_golden_result_unless_asked_not_to() -> None:
    golden, target = torch.tensor([0.1, 1.0]), torch.tensor([0.1, 1.0], dtype=torch.float16)
    assert judge(target, golden, standard="binary_consistency").outcome == "pass"
    assert judge(target, golden, standard=standard("binary_consistency", cast_golden=False)).outcome == "fail"


def test_binary_consistency_may_allow_integers_to_be_off_by_one() -> None:
    golden = torch.tensor([1, 2, 3], dtype=torch.int8)
    by = standard("binary_consistency", max_abs_err=1)
    assert judge(golden + 1, golden, standard=by).outcome == "pass"
    assert judge(golden + 2, golden, standard=by).outcome == "fail"


def test_absolute_threshold_counts_small_and_normal_elements_apart() -> None:
    golden = torch.tensor([1.0, 1e-8], dtype=torch.float64)
    verdict = judge(torch.tensor([1.0, 2e-8]), golden, standard="absolute_threshold")
    assert verdict.metrics == {"inf_nan_error_ratio": 0, "rel_err_ratio": 0, "abs_err_ratio": 1}
    verdict = judge(torch.tensor([1.00001, 1e-8]), golden, standard="absolute_threshold")
    assert verdict.metrics == {"inf_nan_error_ratio": 0, "rel_err_ratio": 1, "abs_err_ratio": 0}


def test_thousandth_needs_its_share(golden: torch.Tensor) -> None:
    target = golden.float()
    target[:2] *= 1.01
    assert judge(target, golden, standard="thousandth").outcome == "pass"
    target[2] *= 1.01
    verdict = judge(target, golden, standard="thousandth")
    assert verdict.outcome == "fail"
    assert "3 of 2000 elements" in verdict.reason


def test_accumulative_error_wants_balanced_errors(golden: torch.Tensor) -> None:
    sign = torch.ones(2000, dtype=torch.float64)
    assert judge((golden + 1e-5 * sign).float(), golden, standard="accumulative_error").outcome == "fail"
    sign[::2] = -1
    assert judge((golden + 1e-5 * sign).float(), golden, standard="accumulative_error").outcome == "pass"


def test_the_msprobe_ulp_rule_forgives_what_the_baseline_does_too(golden: torch.Tensor) -> None:
    target, worse = steps_off(golden, 10**6, 200), steps_off(golden, 10**6, 300)
    assert judge(target, golden, standard="msprobe_ulp", baseline=golden.float()).outcome == "fail"
    assert judge(target, golden, standard="msprobe_ulp", baseline=worse).outcome == "pass"
    assert judge(target, golden, standard="msprobe_ulp").outcome == "fail"


def test_the_msprobe_benchmark_needs_a_baseline_only_above_its_floors(golden: torch.Tensor) -> None:
    assert judge((golden * 1.00003).float(), golden, standard="msprobe_benchmark").outcome == "pass"
    verdict = judge((golden * 1.01).float(), golden, standard="msprobe_benchmark")
    assert verdict.outcome == "skip"
    assert "no baseline" in verdict.reason


def test_the_benchmark_floor_follows_the_scale_of_the_output(golden: torch.Tensor) -> None:
    for scale in (1e-30, 1.0, 1e30):
        exact = (golden * scale).float()
        assert judge(exact * 1.000001, golden * scale, standard="benchmark", baseline=exact).outcome == "pass"
        assert judge(exact * 1.0001, golden * scale, standard="benchmark", baseline=exact).outcome == "fail"


def test_limits_of_a_standard_can_be_set_by_name() -> None:
    assert standard("ulp", max_ulp=7) == msprobe_standards.Ulp(max_ulp=7)


@pytest.mark.parametrize(
    ("name", "limits", "message"),
    [
        ("ULP", {}, r"unknown standard 'ULP'; did you mean 'ulp'\?"),
        (
            "ulp",
            {"max": 1},
            r"standard 'ulp' has no limit 'max'; did you mean 'max_ulp'\?",
        ),
        ("ulp", {"max_ulp": "2"}, "limit 'max_ulp' of standard 'ulp' is '2'; allowed: a number >= 0"),
        ("ulp", {"max_ulp": -1}, "allowed: a number >= 0"),
        ("ulp", {"max_ulp": math.nan}, "allowed: a number >= 0"),
        ("ulp", {"max_ulp": True}, "allowed: a number >= 0"),
        ("binary_consistency", {"cast_golden": 1}, "allowed: true or false"),
        ("not_compared", {"x": 1}, r"known: none"),
    ],
)
def test_unknown_standards_and_limits_are_refused_with_the_valid_ones(
    name: str, limits: dict[str, object], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        standard(name, **limits)


@dataclass(frozen=True)
class HalfRight(Standard):
    """At least half of the elements are right."""

    min_share: float = 0.5

    name: ClassVar[str] = "half_right"
    wanted: ClassVar[frozenset[str]] = frozenset({"cast_error_rate"})

    def decide(self, metrics: Metrics, baseline_metrics: Metrics | None) -> Verdict:
        right = 1 - metrics["cast_error_rate"]
        return Verdict("pass" if right >= self.min_share else "fail", self.name, f"{right:.0%} are right")


@pytest.mark.usefixtures("own_registry")
def test_a_standard_of_ones_own_is_used_by_name() -> None:
    register_standard("half_right", HalfRight)
    golden = torch.tensor([1.0, 2.0], dtype=torch.float64)
    assert judge(torch.tensor([1.0, 3.0]), golden, standard="half_right").reason == "50% are right"
    assert judge(torch.tensor([1.0, 3.0]), golden, standard=standard("half_right", min_share=0.6)).outcome == "fail"


@pytest.mark.usefixtures("own_registry")
def test_a_name_is_registered_once() -> None:
    register_standard("half_right", HalfRight)
    register_standard("half_right", HalfRight)
    with pytest.raises(ValueError, match="'ulp' is already registered"):
        register_standard("ulp", HalfRight)
