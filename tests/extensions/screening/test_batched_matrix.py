"""Einsums that are products of matrices."""

from __future__ import annotations

from itertools import permutations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pytest_msprobe.extensions.screening.im2col import contraction

SIZES = dict(zip("abmnkl", (2, 3, 4, 5, 6, 7), strict=True))


def _shuffled(letters: str) -> st.SearchStrategy[str]:
    return st.sampled_from(["".join(each) for each in permutations(letters)])


def _values(letters: str) -> torch.Tensor:
    return torch.randn([SIZES[each] for each in letters])


@given(_shuffled("abmk"), _shuffled("abkln"), _shuffled("abmln"))
def test_the_matrices_of_an_einsum_multiply_to_those_of_its_result(left: str, right: str, result: str) -> None:
    ours, theirs, equation = _values(left), _values(right), f"{left}, {right} -> {result}"
    found = contraction(equation, ours.shape, theirs.shape)
    assert found is not None
    expected = torch.einsum(equation, ours, theirs)
    assert found.shape == expected.shape
    product = found.left.matrices(ours) @ found.right.matrices(theirs)
    torch.testing.assert_close(product, found.result.matrices(expected))


def test_a_result_that_is_not_reported_is_in_the_order_of_the_alphabet() -> None:
    left, right = _values("kn"), _values("mk")
    found = contraction("kn,mk", left.shape, right.shape)
    assert found is not None
    assert found.shape == torch.einsum("kn,mk", left, right).shape


@pytest.mark.parametrize(
    ("equation", "left", "right"),
    [
        ("mk,kn,n->mn", (4, 6), (6, 5)),
        ("...mk,kn->...mn", (4, 6), (6, 5)),
        ("mkl,kn->mn", (4, 6, 7), (6, 5)),
        ("mm,mn->mn", (4, 4), (4, 5)),
        ("mk,nk->m", (4, 6), (5, 6)),
        ("mk,kn->mn", (4, 1), (6, 5)),
        ("mk,kn->mn", (4, 6, 2), (6, 5)),
        ("m,n->mn", (4,), (5,)),
        ("mk,mk->m", (4, 6), (4, 6)),
        ("mk,kn->mnz", (4, 6), (6, 5)),
    ],
)
def test_other_einsums_are_none(equation: str, left: tuple[int, ...], right: tuple[int, ...]) -> None:
    assert contraction(equation, torch.Size(left), torch.Size(right)) is None
