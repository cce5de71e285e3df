"""Whether two large tensors are equal, as torch tells it, without its cost."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from msprobe_standards.metrics import bit_equal

COUNT = 3 * 2**13
SPECIAL = [0.0, -0.0, 1.5, float("nan"), float("inf"), -float("inf")]
DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
PLACED = st.lists(st.tuples(st.integers(0, COUNT - 1), st.sampled_from(SPECIAL)), max_size=3)


@given(st.sampled_from(DTYPES), PLACED, PLACED, st.booleans())
def test_large_tensors_are_equal_where_torch_says_so(
    dtype: torch.dtype, ours: list[tuple[int, float]], theirs: list[tuple[int, float]], is_shared: bool
) -> None:
    target = torch.linspace(-3, 3, COUNT).to(dtype)
    golden = target.clone()
    for at, value in ours:
        target[at] = value
    for at, value in ours if is_shared else theirs:
        golden[at] = value
    assert bit_equal(target, golden) == torch.equal(target, golden)
    columns, others = target.view(2, -1).mT, golden.view(2, -1).mT
    assert bit_equal(columns, others) == torch.equal(columns, others)


@given(st.integers(0, 2**21 - 1), st.booleans(), st.booleans())
@pytest.mark.slow
def test_one_element_of_a_very_large_tensor_shows_wherever_it_is(at: int, transposed: bool, alike: bool) -> None:
    golden = torch.zeros(2048, 1024)
    target = golden.bfloat16()
    if transposed:
        golden = golden.mT
        target = target.mT if alike else target.view(1024, 2048)
    assert bit_equal(target, golden)
    golden[divmod(at, golden.shape[1])] = 1.0
    assert not bit_equal(target, golden)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_golden_result_is_rounded_before_it_is_compared(dtype: torch.dtype) -> None:
    golden = torch.linspace(-3, 3, COUNT, dtype=torch.float64)
    assert bit_equal(golden.to(dtype), golden)
    assert bit_equal(golden.to(dtype), golden + 1e-3) is False


def test_a_negation_that_is_only_noted_counts() -> None:
    values = torch.linspace(1, 3, COUNT, dtype=torch.complex128)
    noted = values.conj().imag
    assert noted.is_neg()
    assert bit_equal(noted, torch.zeros(COUNT, dtype=torch.float64))
    assert not bit_equal((values * 1j).conj().imag, torch.ones(COUNT, dtype=torch.float64))


def test_tensors_of_more_dimensions_than_arrays_have_are_compared() -> None:
    golden = torch.linspace(-3, 3, 8, dtype=torch.float64).view([1] * 70 + [8])
    assert bit_equal(golden.float(), golden)
    assert not bit_equal(golden.float() + 1e-3, golden)
