"""Digests of rows and columns, by their definition in whole numbers."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from msprobe_hooks.extensions.checkpoint.torch_weights import rounded_digests, tensor_digests
from msprobe_hooks.extensions.checkpoint.weights_file import _DIGIT_FACTORS, BASES, PRIME, added, shifted, single

DTYPES = [torch.bfloat16, torch.float32, torch.float64, torch.float8_e4m3fn, torch.bool, torch.int64]


def by_definition(tensor: torch.Tensor) -> list[int]:
    """Return the digests of rows in Python's integers."""
    size = tensor.element_size()
    words = tensor.contiguous().view(torch.int16 if size > 1 else torch.int8).reshape(len(tensor), tensor.shape[1], -1)
    found = []
    for row in words.tolist():
        remainders = [
            sum(
                x * pow(factor, d, PRIME) * pow(base, j, PRIME)
                for j, digits in enumerate(row)
                for d, x in enumerate(digits)
            )
            % PRIME
            for base, factor in zip(BASES, _DIGIT_FACTORS, strict=True)
        ]
        found.append(remainders[0] | remainders[1] << 26)
    return found


@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_and_columns_have_the_digests_of_the_definition(dtype: torch.dtype) -> None:
    tensor = (torch.randn(7, 13, dtype=torch.float64) * 100).to(dtype)
    [found] = tensor_digests(tensor)
    assert found.columns is not None
    assert found.rows.tolist() == by_definition(tensor)
    assert found.columns.tolist() == by_definition(tensor.t().contiguous())


def test_sums_of_large_matrices_are_exact() -> None:
    # All bits but the sign's set: no sum is larger.
    tensor = torch.full((3, 20_000), 0x7FFF, dtype=torch.int16)
    [found] = tensor_digests(tensor)
    assert found.rows.tolist() == by_definition(tensor)
    [transposed] = tensor_digests(tensor.t())
    assert transposed.rows.tolist() == found.columns.tolist()  # type: ignore[union-attr]
    assert transposed.columns.tolist() == found.rows.tolist()  # type: ignore[union-attr]


def test_shards_of_columns_add_up_to_the_whole() -> None:
    tensor = torch.randn(5, 12)
    [whole], [left], [right] = tensor_digests(tensor), tensor_digests(tensor[:, :7]), tensor_digests(tensor[:, 7:])
    assert added(left.rows, shifted(right.rows, 7)).tolist() == whole.rows.tolist()


def test_a_rounded_matrix_has_the_digests_of_its_rounded_copy() -> None:
    tensor = torch.randn(5, 12)
    assert rounded_digests(tensor)[0].rows.tolist() == tensor_digests(tensor.bfloat16())[0].rows.tolist()


def test_one_element_that_changes_or_moves_changes_its_rows() -> None:
    tensor = torch.randn(64, 64).bfloat16()
    other = tensor.clone()
    other[3, 5] = -other[3, 5]
    other[9, [1, 2]] = other[9, [2, 1]]
    [one], [changed] = tensor_digests(tensor), tensor_digests(other)
    assert np.flatnonzero(one.rows != changed.rows).tolist() == [3, 9]
    assert np.flatnonzero(one.columns != changed.columns).tolist() == [1, 2, 5]  # type: ignore[operator]
    assert single(one) != single(changed)


def test_each_matrix_of_a_stack_and_a_vector_and_a_number_have_digests() -> None:
    stack = torch.randn(3, 4, 5)
    assert [each.rows.tolist() for each in tensor_digests(stack)] == [
        tensor_digests(each)[0].rows.tolist() for each in stack
    ]
    assert len(tensor_digests(torch.randn(6))[0].rows) == 6
    assert len(tensor_digests(torch.tensor(2.0))[0].rows) == 1
    assert len(tensor_digests(torch.empty(0, 4))[0].rows) == 0
