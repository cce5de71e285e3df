from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

import msprobe_standards
from msprobe_standards import ExcusedByBaseline, ExcusedBySensitivity, Verdict, judge, standard, worst
from msprobe_standards.protocol import number

TENSOR_STANDARDS = [name for name in msprobe_standards.standard_names() if name != "not_compared"]


def forbidden() -> object:
    raise AssertionError("the baseline was asked for although the outcome cannot depend on it")


def counted(result: object) -> tuple[Callable[[], object], list[int]]:
    calls: list[int] = []

    def baseline() -> object:
        calls.append(1)
        return result

    return baseline, calls


@pytest.fixture
def golden() -> torch.Tensor:
    return torch.randn(40, 50, dtype=torch.float64, generator=torch.Generator().manual_seed(3))


@pytest.mark.parametrize("name", TENSOR_STANDARDS)
def test_one_nan_among_right_values_fails_every_standard(name: str, golden: torch.Tensor) -> None:
    target = golden.float()
    target[7, 9] = math.nan
    verdict = judge(target, golden, standard=name, baseline=golden.float())
    assert verdict.outcome == "fail"
    assert "1 of 2000 elements" in verdict.reason
    assert verdict.reason.endswith(f"; at [7, 9] nan, golden {golden[7, 9]:.5g}")


@pytest.mark.parametrize("name", TENSOR_STANDARDS)
@pytest.mark.parametrize("values", [[math.nan, math.inf, -math.inf, 1.0], []])
def test_equal_nonfinite_and_empty_outputs_pass_every_standard(name: str, values: list[float]) -> None:
    target = torch.tensor(values)
    assert judge(target, target.double(), standard=name, baseline=target).outcome == "pass"


@pytest.mark.parametrize("name", TENSOR_STANDARDS)
def test_integers_that_differ_fail_every_standard(name: str) -> None:
    golden = torch.tensor([1, 2, 3], dtype=torch.int16)
    target = torch.tensor([1, 2, 4], dtype=torch.int16)
    assert judge(golden, golden, standard=name, baseline=golden).outcome == "pass"
    verdict = judge(target, golden, standard=name, baseline=golden)
    assert (verdict.outcome, verdict.standard) == ("fail", "binary_consistency")
    assert "1 of 3 elements" in verdict.reason


@pytest.mark.parametrize(
    ("target", "golden", "words"),
    [
        (torch.ones(2, 3), torch.ones(3, 2), r"shape is (2, 3), golden has (3, 2)"),
        (torch.ones(0, 3), torch.ones(3, 0), r"shape is (0, 3), golden has (3, 0)"),
        (torch.ones(2), torch.ones(2, dtype=torch.int64), "dtype is torch.float32, golden has torch.int64"),
        (
            torch.ones(2, dtype=torch.bool),
            torch.ones(2, dtype=torch.uint8),
            "dtype is torch.bool, golden has torch.uint8",
        ),
        (
            torch.ones(2, dtype=torch.int32),
            torch.ones(2, dtype=torch.int64),
            "dtype is torch.int32, golden has torch.int64",
        ),
        (torch.ones(2, dtype=torch.complex64), torch.ones(2), "dtype is torch.complex64, golden has torch.float32"),
        (torch.ones(()), 1.0, "output is Tensor, golden is float"),
        (True, 1, "output is bool, golden is int"),
    ],
)
def test_what_cannot_be_compared_fails(target: object, golden: object, words: str) -> None:
    verdict = judge(target, golden, standard="ulp")
    assert (verdict.outcome, verdict.margin) == ("fail", math.inf)
    assert verdict.reason == words


@pytest.mark.parametrize(
    ("target", "golden", "outcome"),
    [
        (3, 3, "pass"),
        (3, 4, "fail"),
        (True, False, "fail"),
        ("a", "a", "pass"),
        (None, None, "pass"),
        (torch.float16, torch.float32, "fail"),
        (torch.Size([2, 3]), torch.Size([2, 3]), "pass"),
        (math.nan, math.nan, "pass"),
        (1.0, math.nan, "fail"),
        (math.inf, -math.inf, "fail"),
        (0.10000000149011612, 0.1, "pass"),
        (0.1001, 0.1, "fail"),
        (1 + 2j, 1 + 2.0000001j, "pass"),
        (1 + 2j, 1 + 2.001j, "fail"),
    ],
)
def test_python_values_are_equal_or_agree_as_float32(target: object, golden: object, outcome: str) -> None:
    assert judge(target, golden, standard="ulp").outcome == outcome


def test_msprobe_compares_python_floats_exactly() -> None:
    assert judge(1.500000001, 1.5, standard="cascade").outcome == "fail"


def test_a_result_equal_to_golden_rounded_never_asks_for_the_baseline(golden: torch.Tensor) -> None:
    verdict = judge(golden.half(), golden.float().half().float(), standard="benchmark", baseline=forbidden)
    assert (verdict.outcome, verdict.margin) == ("pass", 0)


@pytest.mark.parametrize("of", [torch.Tensor.contiguous, torch.Tensor.t], ids=["contiguous", "transposed"])
def test_a_large_result_is_held_against_golden_rounded_to_its_last_element(
    of: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    large = torch.linspace(0.1, 1.0, 1025 * 1025).reshape(1025, 1025)
    equal = of(large.half())
    assert judge(equal, of(large), standard="binary_consistency").metrics == {"cast_error_rate": 0.0}
    equal[-1, -1] += 1
    verdict = judge(equal, of(large), standard="binary_consistency")
    assert verdict.outcome == "fail"
    assert verdict.metrics["cast_error_rate"] == pytest.approx(1 / 1025**2)


@pytest.mark.parametrize("name", msprobe_standards.standard_names())
def test_gradients_that_arrive_are_measured_for_a_standard_alone_that_relates_to_them(name: str) -> None:
    def measured() -> float:
        raise AssertionError("a large tensor was walked over although nothing depends on it")

    judging = standard(name)
    assert judging.for_gradients(measured) is judging


def test_errors_under_the_floor_never_ask_for_the_baseline(golden: torch.Tensor) -> None:
    target = (golden * (1 + 1e-7)).float()
    assert judge(target, golden, standard="benchmark", baseline=forbidden).outcome == "pass"


def test_errors_over_the_floor_are_measured_against_the_baseline(golden: torch.Tensor) -> None:
    noise = 1e-4 * torch.randn(golden.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    target, alike = (golden + noise).float(), (golden - 0.8 * noise).float()
    baseline, calls = counted(alike)
    assert judge(target, golden, standard="benchmark", baseline=baseline).outcome == "pass"
    assert calls == [1]
    verdict = judge(target, golden, standard="benchmark", baseline=golden.float())
    assert verdict.outcome == "fail"
    assert verdict.metrics["rms_scaled_error"] > verdict.limits["rms_scaled_error"]
    assert verdict.margin > 1


@pytest.mark.parametrize("result", [None, torch.full((40, 50), math.nan)])
def test_the_benchmark_says_when_it_had_no_usable_baseline(golden: torch.Tensor, result: torch.Tensor | None) -> None:
    wide = judge((golden * (1 + 2e-6)).float(), golden, standard="benchmark", baseline=lambda: result)
    assert wide.outcome == "pass"
    assert "judged without a baseline" in wide.reason
    wrong = judge((golden * 1.001).float(), golden, standard="benchmark", baseline=lambda: result)
    assert wrong.outcome == "fail"
    assert "judged without a baseline" in wrong.reason


def test_a_failure_names_the_numbers_their_limits_and_the_place(golden: torch.Tensor) -> None:
    target = golden.float()
    target[3, 5] *= 1.5
    verdict = judge(target, golden, standard="ulp")
    assert verdict.reason.startswith(
        f"1 of 2000 elements wrong, up to {number(verdict.metrics['max_ulp_error'])} ulp (2 allowed); at [3, 5] "
    )
    assert verdict.metrics.keys() == verdict.limits.keys()


def test_a_failure_is_excused_where_the_baseline_errs_as_much() -> None:
    excusing = ExcusedByBaseline(standard("binary_consistency"))
    values = torch.tensor([65504.0, math.inf], dtype=torch.float16)
    target, golden = values.nan_to_num(), values.float().nan_to_num()
    assert judge(target, golden, standard="binary_consistency").outcome == "fail"
    verdict = judge(target, golden, standard=excusing, baseline=lambda: values.nan_to_num())
    assert verdict.outcome == "pass"
    assert verdict.reason.startswith("excused, the baseline errs as much")
    worse = target.clone()
    worse[0] = 1
    assert judge(worse, golden, standard=excusing, baseline=target).outcome == "fail"


@pytest.mark.parametrize("excuse", [ExcusedByBaseline, ExcusedBySensitivity])
@pytest.mark.parametrize("name", ["cascade", "ulp"])
def test_an_excuse_has_python_floats_judged_as_its_standard_has(
    excuse: type[ExcusedByBaseline | ExcusedBySensitivity], name: str
) -> None:
    by = standard(name)
    assert judge(1 + 2**-30, 1.0, standard=excuse(by)).outcome == judge(1 + 2**-30, 1.0, standard=by).outcome


def test_a_standard_that_weighs_errors_does_so_where_the_baseline_may_excuse_it() -> None:
    golden = torch.tensor([1.0, 2.0], dtype=torch.float64)
    target, moved = (golden * 1.001).float(), [golden * 1.002]
    by = ExcusedByBaseline(standard("sensitivity"))
    assert judge(target, golden, standard=by).outcome == "fail"
    assert judge(target, golden, standard=by, moved=moved).outcome == "pass"


def test_overflow_that_the_baseline_shares_is_excused_element_by_element() -> None:
    excusing = ExcusedByBaseline(standard("ulp"))
    golden = torch.tensor([1.0, 2.0, 3.0])
    baseline = torch.tensor([math.inf, 2.0, 3.0], dtype=torch.float16)
    assert judge(baseline.clone(), golden, standard=excusing, baseline=baseline).outcome == "pass"
    elsewhere = torch.tensor([1.0, math.inf, 3.0], dtype=torch.float16)
    assert judge(elsewhere, golden, standard=excusing, baseline=baseline).outcome == "fail"
    wrong_too = torch.tensor([math.inf, 2.0, 4.0], dtype=torch.float16)
    assert judge(wrong_too, golden, standard=excusing, baseline=baseline).outcome == "fail"


def test_the_worst_verdict_decides() -> None:
    verdicts = [
        Verdict("skip", "s"),
        Verdict("pass", "a", margin=0.9),
        Verdict("fail", "b"),
        Verdict("warn", "c", margin=9),
    ]
    assert worst(verdicts) is verdicts[2]
    assert worst(verdicts[:2]) is verdicts[1]
    assert worst([]) is None
