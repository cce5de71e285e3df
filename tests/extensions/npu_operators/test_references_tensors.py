"""Parts of tensors moved, picked and placed, against definitions of their own and the documentation's numbers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from pytest_msprobe.extensions.npu_operators.tensors import layout
from pytest_msprobe.extensions.npu_operators.tensors.layout import npu_max
from pytest_msprobe.extensions.npu_operators.tensors.placement import (
    npu_alloc_float_status,
    npu_gather_sparse_index,
    npu_masked_fill_range,
    npu_pad,
    npu_scatter,
    npu_scatter_list,
    npu_stride_add,
    npu_stride_copy,
)


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def test_a_range_of_each_row_is_filled() -> None:
    start, end = torch.tensor([[0, 1, 2]]), torch.tensor([[1, 2, 4]])
    out = npu_masked_fill_range(torch.zeros(4, 4), start, end, torch.tensor([1.0]), 1)
    assert out.tolist() == [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 1], [0, 0, 0, 0]]


def test_zeros_are_added_around_the_first_dimension_first() -> None:
    out = npu_pad(torch.tensor([[20, 20, 10, 10]]), [1, 1, 1, 1])
    assert out.tolist() == [[0] * 6, [0, 20, 20, 10, 10, 0], [0] * 6]
    assert npu_pad(torch.ones(1, 1), [1, 0]).tolist() == [[0], [1]]


def test_updates_are_placed_along_a_dimension_that_they_lack() -> None:
    x, updates = torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([-1.0, -2.0])
    assert npu_scatter(x, torch.tensor([1, 1]), updates, 0).tolist() == [[1, 2], [-1, -2]]
    assert npu_scatter(x, torch.tensor([1, 1]), updates, 1).tolist() == [[1, -1], [3, -2]]
    assert npu_scatter(x, torch.tensor([], dtype=torch.int32), updates, 1).equal(x)


def test_another_reduction_of_listed_tensors_is_refused() -> None:
    with pytest.raises(NotImplementedError, match="reduce"):
        npu_scatter_list([draw(1, 2, 2)], torch.tensor([0]), draw(1, 1, 1, 2), reduce="add")


def test_missing_channels_count_as_zeros() -> None:
    one = torch.ones(1, 1, 1, 1, 1)
    assert npu_stride_add(one, one, 0, 0, 1).flatten().tolist() == [2.0] + [0.0] * 15


def test_a_copy_by_strides_is_written_where_it_shall_be() -> None:
    out = torch.zeros(2, 2)
    assert npu_stride_copy(torch.arange(6.0), [2, 2], [3, 1], 1, out=out) is out
    assert out.tolist() == [[1, 2], [4, 5]]


@pytest.mark.parametrize(
    ("operator", "arguments"),
    [
        (layout.npu_transpose, ([1, 0],)),
        (layout.npu_reshape, ([3, 2],)),
        (layout.npu_slice, ([0, 0], [2, 3])),
        (layout.npu_broadcast, ([2, 3],)),
        (layout.npu_indexing, ([0, 0], [2, 3], [1, 1])),
        (layout.npu_sort_v2, (1,)),
    ],
)
def test_a_result_is_written_where_it_shall_be(operator: Callable[..., Tensor], arguments: tuple[object, ...]) -> None:
    x = draw(2, 3)
    wanted = operator(x, *arguments)
    out = torch.zeros_like(wanted)
    assert operator(x, *arguments, out=out) is out
    assert out.equal(wanted)


def test_the_room_for_overflow_bits_is_empty() -> None:
    assert npu_alloc_float_status(torch.ones(2)).tolist() == [0.0] * 8


def test_gradients_of_picked_elements_are_those_of_their_forwards() -> None:
    x = draw(3, 4).requires_grad_()
    index = torch.tensor([[0, 3, 3], [1, 1, 2], [2, 0, 0]])
    grad = draw(3, 3, seed=1)
    (wanted,) = torch.autograd.grad(x.gather(1, index), x, grad)
    torch.testing.assert_close(layout.npu_gather_backward(grad, [3, 4], 1, index, False), wanted)
    rows = torch.tensor([[0, 2], [2, 1]])
    grad = draw(2, 2, 4, seed=2)
    (wanted,) = torch.autograd.grad(npu_gather_sparse_index(x, rows), x, grad)
    torch.testing.assert_close(layout.npu_gather_sparse_index_backward(grad, [3, 4], rows), wanted)


@pytest.mark.parametrize("keepdim", [False, True])
def test_the_gradient_of_a_maximum_is_that_of_its_forward(keepdim: bool) -> None:
    x = draw(3, 4).requires_grad_()
    values, indices = npu_max(x, 1, keepdim)
    grad = draw(*values.shape, seed=1)
    (wanted,) = torch.autograd.grad(values, x, grad)
    torch.testing.assert_close(layout.npu_max_backward(grad, 1, indices, [3, 4], keepdim), wanted)


def test_gradients_of_casts_have_the_dtype_of_what_was_cast() -> None:
    grad = torch.tensor([1.0, 2.5], dtype=torch.float16)
    for cast in (layout.npu_dtype_cast_backward, layout._npu_dtype_cast_backward):
        assert cast(grad, torch.float32).dtype is torch.float32
    assert layout._npu_dtype_cast(grad, torch.int32).tolist() == [1, 2]
    assert layout._npu_format_cast(grad, 29).equal(grad)
