"""The free benchmark's verdicts, against the formulas computed by numpy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from msprobe_hooks.extensions.free_benchmark import torch_perturbations
from msprobe_hooks.extensions.free_benchmark.argument_changes import outputs_of, tolerance
from msprobe_hooks.extensions.free_benchmark.torch_perturbations import deviations, is_like_on_cpu, largest_ratio

FLOATS = st.floats(-1e3, 1e3, width=32) | st.sampled_from([math.inf, -math.inf, math.nan])


def of(result: Any) -> list[Any]:
    return list(outputs_of(result))


def judged(
    perturbation: str, before: Any, after: Any, *, is_gradient: bool = False
) -> list[torch_perturbations.Deviation]:
    return deviations(perturbation, of(before), of(after), is_gradient=is_gradient)


def by_formula(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any], tol: float) -> float | None:
    """Return the ratio as msprobe's rule has it, in float64; None for a flipped sign."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    with np.errstate(all="ignore"):
        if np.nanmin(np.append(a * b, 0.0)) < -(tol**2):
            return None
        r = np.maximum(np.abs(a), tol) / np.maximum(np.abs(b), tol)
        r[np.isnan(r)] = 1.0
        return float(max(r.max(), np.inf if r.min() == 0 else 1 / r.min()))


@given(st.data(), st.integers(1, 12))
def test_the_ratio_is_that_of_the_formula(data: st.DataObject, length: int) -> None:
    a, b = (data.draw(arrays.arrays(np.float32, length, elements=FLOATS)) for _ in range(2))
    found, expected = largest_ratio(torch.from_numpy(a), torch.from_numpy(b), 1e-4), by_formula(a, b, 1e-4)
    assert found is None if expected is None else found == pytest.approx(expected, rel=1e-6)


@given(st.data())
def test_the_ratio_does_not_depend_on_which_result_is_perturbed_or_on_order(data: st.DataObject) -> None:
    pairs = data.draw(st.lists(st.tuples(FLOATS, FLOATS), min_size=1, max_size=8))
    a, b = torch.tensor(pairs).T
    order = data.draw(st.permutations(range(len(pairs))))
    straight = largest_ratio(a, b, 1e-4)
    for other in (largest_ratio(b, a, 1e-4), largest_ratio(a[order], b[order], 1e-4)):
        assert other == straight if straight is None else other == pytest.approx(straight, rel=1e-6)


@pytest.mark.parametrize("place", [0, 3, 7])
def test_every_chunk_of_a_large_result_counts(monkeypatch: pytest.MonkeyPatch, place: int) -> None:
    monkeypatch.setattr(torch_perturbations, "_CHUNK", 2)
    after = torch.ones(8)
    after[place] = 2.0
    assert largest_ratio(torch.ones(8), after, 1e-4) == 2.0
    after[place] = -1.0
    assert largest_ratio(torch.ones(8), after, 1e-4) is None


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        (torch.bfloat16, 1e-2),
        (torch.float16, 1e-3),
        (torch.float32, 1e-4),
        (torch.float64, 1e-8),
        (torch.float8_e4m3fn, 1e-4),
    ],
)
def test_what_is_small_depends_on_the_dtype_and_for_gradients_does_not(dtype: torch.dtype, expected: float) -> None:
    assert tolerance(dtype) == pytest.approx(expected)
    assert tolerance(dtype, is_gradient=True) == 1e-3


@pytest.mark.parametrize(
    ("dtype", "threshold"),
    [(torch.float16, 1.002), (torch.bfloat16, 1.004), (torch.float32, 1.0002), (torch.float64, 1.0002)],
)
def test_a_ratio_over_the_threshold_of_the_original_dtype_is_inconsistent(dtype: torch.dtype, threshold: float) -> None:
    before, after = torch.ones(2, dtype=dtype), torch.ones(2)
    [within] = judged("improve_precision", before, after * (1 + 0.9 * (threshold - 1)))
    [beyond] = judged("improve_precision", before, after * (1 + 1.1 * (threshold - 1)))
    assert (within.is_consistent, beyond.is_consistent) == (True, False)
    assert beyond.threshold == threshold
    assert beyond.ratio == pytest.approx(1 + 1.1 * (threshold - 1), rel=1e-6)


def test_without_a_change_nothing_but_the_same_is_consistent() -> None:
    x = torch.tensor([1.0, math.nan, math.inf, -2.0, 0.0])
    assert [deviation.is_consistent for deviation in judged("no_change", x, x)] == [True]
    other = x.clone()
    other[0] = math.nextafter(1.0, 2.0) + 1e-6
    assert [deviation.is_consistent for deviation in judged("no_change", x, other)] == [False]


def test_a_sign_that_flips_has_no_ratio_and_one_of_what_is_small_has() -> None:
    [flipped] = judged("add_noise", torch.tensor([0.5, 1.0]), torch.tensor([-0.5, 1.0]))
    assert (flipped.is_consistent, flipped.flips_sign, flipped.ratio) == (False, True, None)
    [small] = judged("add_noise", torch.tensor([5e-5, 1.0]), torch.tensor([-5e-5, 1.0]))
    assert (small.is_consistent, small.ratio) == (True, 1.0)


def test_results_are_compared_one_by_one_and_of_values_with_indices_the_values() -> None:
    x, y = torch.tensor([[1.0, 3.0]]), torch.tensor([[1.0, 4.0]])
    [deviation] = judged("add_noise", x.max(1), y.max(1))
    assert (deviation.index, deviation.ratio) == (None, pytest.approx(4 / 3))
    found = judged("add_noise", [x, {"a": (x, y)}, None], [x, {"a": (y, y)}, None])
    assert [(deviation.index, deviation.is_consistent) for deviation in found] == [(0, True), (1, False), (1, True)]


def test_what_is_no_float_is_left_alone_and_python_numbers_are_compared() -> None:
    assert judged("add_noise", torch.arange(3), torch.arange(3) + 1) == []
    assert judged("add_noise", torch.ones(2, dtype=torch.complex64), torch.zeros(2, dtype=torch.complex64)) == []
    assert judged("add_noise", torch.ones(0), torch.ones(0)) == []
    assert [each.is_consistent for each in judged("add_noise", [3, 3, 1.0, 1.0], [3, 4, 1.0 + 1e-12, 1.1])] == [
        True,
        False,
        True,
        False,
    ]


def test_a_result_of_another_shape_or_number_is_inconsistent() -> None:
    assert [each.is_consistent for each in judged("add_noise", torch.ones(3), torch.ones(2))] == [False]
    assert [each.is_consistent for each in judged("add_noise", [torch.ones(3)], [torch.ones(3)] * 2)] == [False]


LIMITS = {torch.float32: 2**-14, torch.float16: 2**-11, torch.bfloat16: 2**-8}


@given(st.data(), st.sampled_from(list(LIMITS)))
def test_against_the_cpu_a_result_is_judged_by_the_formula(data: st.DataObject, dtype: torch.dtype) -> None:
    limit = LIMITS[dtype]
    size = st.floats(2**-6, 64) | st.floats(-64, -(2**-6))
    reference = np.array(data.draw(st.lists(size, min_size=1, max_size=6)))
    shift = data.draw(st.lists(st.floats(-2, 2), min_size=len(reference), max_size=len(reference)))
    actual = torch.tensor(reference + limit * np.array(shift), dtype=dtype)
    found = actual.double().numpy()
    difference = found - reference
    wrong = np.where(np.abs(found) < 1, np.abs(difference) > limit, np.abs(difference) / np.abs(reference) > limit)
    bias = abs(np.mean(difference / np.where(np.abs(reference) >= 1, np.abs(reference), 1.0)))
    assert is_like_on_cpu(actual, torch.tensor(reference)) == (not wrong.any() and bias <= 1e-4)


def test_infinities_of_the_cpu_judge_nothing_and_those_of_the_device_count_as_one() -> None:
    assert is_like_on_cpu(torch.zeros(2), torch.tensor([1.0, math.inf]))
    assert is_like_on_cpu(torch.tensor([math.nan]), torch.ones(1))
    assert not is_like_on_cpu(torch.tensor([math.inf]), torch.tensor([3.0]))
