from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import mpmath
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from msprobe_standards import ExcusedBySensitivity, Policy, Sensitivity, amplification, judge, standard

U = 2.0**-24


def outcome(target: torch.Tensor, golden: torch.Tensor, *draws: torch.Tensor) -> str:
    return judge(target, golden, standard="sensitivity", moved=draws).outcome


def golden_of(seed: int, count: int = 200) -> torch.Tensor:
    return torch.randn(count, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def moved_from(golden: torch.Tensor, units: float, seed: int) -> torch.Tensor:
    signs = torch.randint(0, 2, golden.shape, generator=torch.Generator().manual_seed(seed)) * 2 - 1
    return golden * (1 + units * U * signs)


def test_a_well_conditioned_call_gets_a_few_units() -> None:
    golden = golden_of(0)
    draws = (moved_from(golden, 1, 1), moved_from(golden, 1, 2))
    assert outcome(moved_from(golden, 3, 3).float(), golden, *draws) == "pass"
    assert outcome(moved_from(golden, 20, 3).float(), golden, *draws) == "fail"


@pytest.mark.parametrize("units", [100, 10_000])
def test_what_golden_moves_by_is_allowed_and_ten_times_that_is_not(units: float) -> None:
    golden = golden_of(0)
    draws = (moved_from(golden, units, 1), moved_from(golden, units, 2))
    assert outcome(moved_from(golden, units, 3).float(), golden, *draws) == "pass"
    assert outcome(moved_from(golden, 10 * units, 3).float(), golden, *draws) == "fail"


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    exponent=st.integers(-80, 80),
    units=st.floats(0, 300),
    wrong=st.floats(0, 3000),
)
def test_a_power_of_two_changes_no_verdict(seed: int, exponent: int, units: float, wrong: float) -> None:
    golden = golden_of(seed, 40)
    draws = [moved_from(golden, units, seed + 1), moved_from(golden, units, seed + 2)]
    target = moved_from(golden, wrong, seed + 3).float()
    scale = 2.0**exponent
    scaled = outcome(target * scale, golden * scale, *(draw * scale for draw in draws))
    assert scaled == outcome(target, golden, *draws)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32), units=st.floats(0, 300), wrong=st.floats(0, 3000), order=st.permutations(range(40)))
def test_the_order_of_elements_and_of_draws_changes_no_verdict(
    seed: int, units: float, wrong: float, order: list[int]
) -> None:
    golden = golden_of(seed, 40)
    draws = [moved_from(golden, units, seed + 1), moved_from(golden, units / 2, seed + 2)]
    target = moved_from(golden, wrong, seed + 3).float()
    permuted = outcome(target[order], golden[order], *(draw[order] for draw in reversed(draws)))
    assert permuted == outcome(target, golden, *draws)


def exact_solution(matrix: list[list[mpmath.mpf]], right: list[float]) -> list[mpmath.mpf]:
    with mpmath.workdps(60):
        return list(mpmath.lu_solve(mpmath.matrix(matrix), mpmath.matrix(right)))


def hilbert(size: int, units: float = 0, seed: int = 0) -> list[list[mpmath.mpf]]:
    """Return a Hilbert matrix rounded to float32, each of its elements moved up or down by so many rounding units."""
    draw = random.Random(seed)

    def element(i: int, j: int) -> mpmath.mpf:
        rounded = mpmath.mpf(float(torch.tensor(1 / (i + j + 1), dtype=torch.float32)))
        return rounded * (1 + draw.choice((-units, units)) * mpmath.mpf(U))

    return [[element(i, j) for j in range(size)] for i in range(size)]


def as_tensor(numbers: Sequence[mpmath.mpf]) -> torch.Tensor:
    return torch.tensor([float(number) for number in numbers], dtype=torch.float64)


def in_ulps(error: torch.Tensor, golden: torch.Tensor) -> float:
    return float((error.abs() / 2.0 ** (golden.abs().log2().floor() - 23)).max())


@pytest.mark.parametrize("size", [3, 5])
@pytest.mark.parametrize("units", [1, 20, 200])
def test_an_ill_conditioned_system_is_excused_exactly_where_its_exact_solutions_say_so(size: int, units: float) -> None:
    right = [1.0, -2.0, 3.0, 1.0, 2.0][:size]
    golden = as_tensor(exact_solution(hilbert(size), right))
    by, found = ExcusedBySensitivity(standard("ulp")), []
    for seed in range(8):
        moved = [as_tensor(exact_solution(hilbert(size, 1, 3 * seed + draw), right)) for draw in (0, 1)]
        target = as_tensor(exact_solution(hilbert(size, units, 3 * seed + 2), right)).float()
        assert judge(target, golden, standard=by).outcome == "fail"
        verdict = judge(target, golden, standard=by, moved=moved)
        error = target.double() - golden
        explained = all(
            measured(error) <= max(16 * measured(draw - golden) for draw in moved)
            for measured in (lambda each: in_ulps(each, golden), lambda each: float(each.abs().max()))
        )
        assert (verdict.outcome == "pass") == explained
        found.append(explained)
    assert {1: sum(found) == 8, 20: 0 < sum(found) < 8, 200: sum(found) == 0}[int(units)]


def test_amplification_is_the_condition_that_exact_solutions_show() -> None:
    right = [1.0, -2.0, 3.0, 1.0]
    golden = as_tensor(exact_solution(hilbert(4), right))
    moved = [as_tensor(exact_solution(hilbert(4, 1, seed), right)) for seed in range(9)]
    seen = [
        float(((each - golden).abs() / golden.abs().clamp_min(golden.abs().mean())).square().mean().sqrt())
        for each in moved
    ]
    assert amplification(golden, moved, U) == pytest.approx(max(seen) / U, rel=1e-6)
    assert 1e3 < max(seen) / U < 1e5


def test_draws_are_asked_for_by_a_failure_alone() -> None:
    golden = golden_of(0)
    asked: list[int] = []

    def moved() -> list[torch.Tensor]:
        asked.append(1)
        return [golden * (1 + 1e-3), golden * (1 - 1e-3)]

    by = ExcusedBySensitivity(standard("ulp"))
    assert judge(moved_from(golden, 1, 1).float(), golden, standard=by, moved=moved).outcome == "pass"
    assert judge(moved_from(golden, 1, 1).float(), golden, standard=Sensitivity(), moved=moved).outcome == "pass"
    assert judge(moved_from(golden, 900, 1).float(), golden, standard=standard("ulp"), moved=moved).outcome == "fail"
    assert not asked
    assert judge(moved_from(golden, 900, 1).float(), golden, standard=by, moved=moved).outcome == "pass"
    assert len(asked) == 1


@pytest.mark.parametrize("draws", [[], [None, None], [torch.zeros(3)]])
def test_draws_that_cannot_be_had_excuse_nothing(draws: list[object]) -> None:
    golden = golden_of(0)
    target = moved_from(golden, 900, 1).float()
    assert judge(target, golden, standard=ExcusedBySensitivity(standard("ulp")), moved=draws).outcome == "fail"
    verdict = judge(target, golden, standard="sensitivity", moved=draws)
    assert verdict.outcome == "fail"
    assert "judged as well-conditioned" in verdict.reason


def test_draws_that_move_to_nan_or_infinity_excuse_nothing() -> None:
    golden = golden_of(0)
    wild = torch.full_like(golden, torch.inf)
    assert outcome(moved_from(golden, 900, 1).float(), golden, wild, wild) == "fail"


def test_a_wrong_nan_is_never_excused() -> None:
    golden = golden_of(0)
    target = golden.float()
    target[3] = torch.nan
    assert outcome(target, golden, golden * 2, golden * 3) == "fail"
    by = ExcusedBySensitivity(standard("ulp"))
    assert judge(target, golden, standard=by, moved=[golden * 2, golden * 3]).outcome == "fail"


def test_an_infinity_that_stays_moves_nothing() -> None:
    golden = golden_of(0)
    golden[5] = torch.inf
    draws = (moved_from(golden, 900, 1), moved_from(golden, 900, 2))
    assert outcome(moved_from(golden, 900, 3).float(), golden, *draws) == "pass"


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_float8_is_weighed_like_any_dtype(dtype: torch.dtype) -> None:
    golden = torch.tensor([1.0, 2.0, 4.0]).to(dtype)
    wrong = torch.tensor([8.0, 16.0, 32.0]).to(dtype)
    assert outcome(wrong, golden, wrong) == "pass"
    assert outcome(wrong, golden, golden) == "fail"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_values_of_a_coarser_format_are_not_excused(dtype: torch.dtype) -> None:
    golden = golden_of(0)
    by = ExcusedBySensitivity(standard("ulp"))
    draws = [golden * 1.01, golden * 0.99]
    assert judge(golden.to(dtype).float(), golden, standard=by, moved=draws).outcome == "fail"
    assert judge((golden * 1.001).float(), golden, standard=by, moved=draws).outcome == "pass"


def test_amplification_is_the_condition_number_of_a_difference() -> None:
    # a - b for a = 1 + 2**-10, b = 1: relative condition (a + b) / (a - b).
    golden = torch.full((100,), 2.0**-10, dtype=torch.float64)
    signs = torch.randint(0, 2, (2, 100), generator=torch.Generator().manual_seed(0)) * 2.0 - 1
    moved = golden + U * ((1 + 2.0**-10) * signs[0] - signs[1])
    assert amplification(golden, [moved, golden], U) == pytest.approx(2**10 * 2**0.5, rel=0.2)


def test_a_policy_excuses_what_it_lists_and_no_integers(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("names: loose\nexcused_by_sensitivity: [inv]\nrules: [{standard: ulp}]\n")
    policy = Policy.load(path)
    assert isinstance(policy.select("linalg.inv", output_dtype=torch.float32), ExcusedBySensitivity)
    assert not isinstance(policy.select("linalg.inv", output_dtype=torch.int32), ExcusedBySensitivity)
    assert not isinstance(policy.select("exp", output_dtype=torch.float32), ExcusedBySensitivity)


def test_a_policy_refuses_what_is_no_list_of_functions(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("excused_by_sensitivity: inv\nrules: [{standard: ulp}]\n")
    with pytest.raises(ValueError, match=r"excused_by_sensitivity: 'inv' is not a list of names"):
        Policy.load(path)
