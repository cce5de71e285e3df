from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_msprobe.engine.replay.ops.canonical_factors import (
    Alignment,
    aligned,
    eigenvalues_in_any_order,
    eigenvectors,
    orthogonal_factor,
    singular_vectors,
)

linalg = torch.linalg


def matrix(seed: int, *shape: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def hermitian(seed: int, values: list[float], dtype: torch.dtype = torch.float64) -> torch.Tensor:
    basis = linalg.qr(matrix(seed, len(values), len(values), dtype=dtype))[0]
    made = (basis * torch.tensor(values).to(dtype)) @ basis.mH
    return (made + made.mH) / 2


def phases(seed: int, count: int, dtype: torch.dtype) -> torch.Tensor:
    return matrix(seed, count, dtype=dtype).sgn()


def close(found: Any, golden: Any) -> bool:
    return all(torch.allclose(each, right, atol=1e-10) for each, right in zip(found, golden, strict=True))


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**32), rows=st.integers(1, 5), columns=st.integers(1, 5), is_complex=st.booleans())
def test_singular_vectors_of_other_signs_and_phases_are_golden_s(
    seed: int, rows: int, columns: int, is_complex: bool
) -> None:
    dtype = torch.complex128 if is_complex else torch.float64
    golden = linalg.svd(matrix(seed, 2, rows, columns, dtype=dtype), full_matrices=False)
    turn = phases(seed + 1, min(rows, columns), dtype)
    target = (golden.U * turn, golden.S, turn.conj()[:, None] * golden.Vh)
    assert close(aligned(singular_vectors, target, golden), golden)


def test_v_that_is_stored_as_it_is_is_aligned_too() -> None:
    golden = torch.svd(matrix(0, 4, 4))
    turn = torch.tensor([1.0, -1.0, -1.0, 1.0], dtype=torch.float64)
    assert close(aligned(singular_vectors, (golden.U * turn, golden.S, golden.V * turn), golden), golden)


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_another_basis_of_equal_values_is_golden_s(dtype: torch.dtype) -> None:
    golden = linalg.eigh(hermitian(0, [1, 2, 2, 2, 5], dtype))
    turn = torch.eye(5, dtype=dtype)
    turn[1:4, 1:4] = linalg.qr(matrix(1, 3, 3, dtype=dtype))[0]
    assert close(aligned(eigenvectors, (golden[0], golden[1] @ turn), golden), golden)


def test_another_basis_of_the_null_space_and_of_its_complement_is_golden_s() -> None:
    low_rank = matrix(0, 6, 2) @ matrix(1, 2, 4)
    golden = linalg.svd(low_rank)
    left, right = torch.eye(6, dtype=torch.float64), torch.eye(4, dtype=torch.float64)
    # Of the four left vectors without a value two complete the basis, and two belong to a zero.
    left[2:4, 2:4], left[4:, 4:] = (linalg.qr(matrix(seed, 2, 2))[0] for seed in (2, 3))
    right[2:, 2:] = linalg.qr(matrix(4, 2, 2))[0]
    target = (golden.U @ left, golden.S, right.mH @ golden.Vh)
    assert close(aligned(singular_vectors, target, golden), golden)


@pytest.mark.parametrize("mode", ["reduced", "complete", "r"])
def test_columns_of_q_of_other_signs_and_another_complement_are_golden_s(mode: str) -> None:
    golden = linalg.qr(matrix(0, 5, 3), mode=mode)
    turn = torch.diag(torch.tensor([1.0, -1, -1, 1, 1], dtype=torch.float64))
    turn[3:, 3:] = linalg.qr(matrix(1, 2, 2))[0]
    turn = turn[: golden[1].shape[0], : golden[1].shape[0]]
    target = (golden[0] @ turn if golden[0].numel() else golden[0], turn.mH @ golden[1])
    assert close(aligned(orthogonal_factor, target, golden), golden)


def test_eigenvalues_in_another_order_are_golden_s_with_their_vectors() -> None:
    golden = linalg.eig(matrix(0, 3, 5, 5))
    order = [3, 1, 4, 0, 2]
    target = (golden[0][..., order], golden[1][..., order] * phases(1, 5, torch.complex128))
    assert close(aligned(eigenvalues_in_any_order, target, golden), golden)


def test_an_eigenvalue_that_stands_twice_is_not_golden_s() -> None:
    golden = [torch.tensor([1.0, 2.0, 3.0], dtype=torch.complex128)]
    found = aligned(eigenvalues_in_any_order, [torch.tensor([3.0, 1.0, 1.0], dtype=torch.complex128)], golden)
    assert not close(found, golden)


@pytest.mark.parametrize("values", [[2.0, 2.0, 1.0], [1.0, 2.0, 1.0], [3.0, 3.0, 3.0], [0.0, 0.0, 0.0]])
def test_another_basis_of_equal_general_eigenvalues_is_golden_s(values: list[float]) -> None:
    diagonal, mixed = torch.tensor(values).to(torch.complex128), torch.eye(3, dtype=torch.complex128)
    equal = (diagonal == diagonal[0]).nonzero().squeeze(-1)
    mixed[equal.unsqueeze(-1), equal] = matrix(1, len(equal), len(equal), dtype=torch.complex128)
    basis = matrix(0, 2, 3, 3, dtype=torch.complex128)
    golden = (diagonal.expand(2, 3), basis / basis.norm(dim=-2, keepdim=True))
    target = golden[1] @ mixed
    order = [2, 0, 1]
    target = (target / target.norm(dim=-2, keepdim=True))[..., order]
    assert close(aligned(eigenvalues_in_any_order, (golden[0][..., order], target), golden), golden)


@pytest.mark.parametrize("wrong", ["another space", "dependent", "length"])
def test_vectors_of_equal_general_eigenvalues_that_are_wrong_stay_wrong(wrong: str) -> None:
    values, golden = torch.tensor([2.0, 2.0, 1.0]).to(torch.complex128), torch.eye(3, dtype=torch.complex128)
    target = golden.clone()
    if wrong == "another space":
        target[2, 0] = 0.01
    elif wrong == "dependent":
        target[:, 1] = target[:, 0]
    else:
        target[:, 0] *= 1.01
    found = aligned(eigenvalues_in_any_order, (values, target), (values, golden))
    assert not torch.allclose(found[1], golden, atol=1e-3)


def test_vectors_of_a_defective_matrix_are_held_against_golden_s_one_by_one() -> None:
    values = torch.tensor([1.0, 1.0]).to(torch.complex128)
    golden = torch.tensor([[1.0, -1.0], [0.0, 1e-16]]).to(torch.complex128)
    found = aligned(eigenvalues_in_any_order, (values, torch.eye(2, dtype=torch.complex128)), (values, golden))
    assert not torch.allclose(found[1], golden, atol=1e-3)


def swapped(vectors: torch.Tensor) -> torch.Tensor:
    return vectors[..., [1, 0, 2, 3]]


def with_a_wrong_sign(vectors: torch.Tensor) -> torch.Tensor:
    wrong = vectors.clone()
    wrong[2, 1] *= -1
    return wrong


def leaning(vectors: torch.Tensor) -> torch.Tensor:
    wrong = vectors.clone()
    wrong[:, 1] += 0.01 * vectors[:, 0]
    return wrong


@pytest.mark.parametrize("spoiled", [swapped, with_a_wrong_sign, leaning])
def test_wrong_vectors_stay_wrong(spoiled: Any) -> None:
    golden = linalg.svd(matrix(0, 4, 4))
    found = aligned(singular_vectors, (spoiled(golden.U), golden.S, golden.Vh), golden)
    assert not torch.allclose(found[0], golden.U, atol=1e-3)


def test_vectors_of_two_spaces_that_are_swapped_stay_wrong() -> None:
    golden = linalg.eigh(hermitian(0, [1, 1, 4, 4]))
    found = aligned(eigenvectors, (golden[0], golden[1][:, [2, 3, 0, 1]]), golden)
    assert not torch.allclose(found[1], golden[1], atol=1e-3)


def test_a_sign_on_one_factor_alone_stays_wrong() -> None:
    golden = linalg.svd(matrix(0, 4, 4))
    target = (golden.U * torch.tensor([1.0, -1, 1, 1]), golden.S, golden.Vh)
    assert not close(aligned(singular_vectors, target, golden), golden)


def test_signs_alone_change_no_bit() -> None:
    golden = linalg.svd(matrix(0, 6, 6))
    target = tuple(factor.float() for factor in golden)
    turned = (-target[0], target[1], -target[2])
    assert all(map(torch.equal, aligned(singular_vectors, turned, golden), aligned(singular_vectors, target, golden)))


@pytest.mark.parametrize("alignment", [None, eigenvectors])
def test_what_cannot_be_aligned_stays_as_it_is(alignment: Alignment | None) -> None:
    golden = (torch.ones(3), torch.ones(3, 3), torch.ones(1))
    for target in ((torch.ones(3), torch.ones(2, 2)), golden, (torch.ones(3), torch.full((3, 3), torch.nan))):
        assert aligned(alignment, target, golden) is target
