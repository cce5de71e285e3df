"""Convolutions that are products of patches with weights."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pytest_msprobe.extensions.screening.im2col import patches

CONVOLUTIONS = (torch.conv1d, torch.conv2d, torch.conv3d)


@given(st.integers(1, 3), st.integers(1, 2), st.integers(1, 3), st.integers(1, 3), st.data())
def test_the_matrices_of_a_convolution_multiply_to_those_of_its_result(
    dimensions: int, batch: int, channels: int, filters: int, data: st.DataObject
) -> None:
    kernel = [data.draw(st.integers(1, 3)) for _ in range(dimensions)]
    sides = [size * data.draw(st.integers(1, 3)) for size in kernel]
    values, weight = torch.randn(batch, channels, *sides), torch.randn(filters, channels, *kernel)
    found = patches(values.shape, weight.shape, {"stride": kernel})
    assert found is not None
    convolution: Any = CONVOLUTIONS[dimensions - 1]
    expected = convolution(values, weight, stride=kernel)
    assert found.shape == expected.shape
    product = found.left.matrices(values) @ found.right.matrices(weight)
    torch.testing.assert_close(product, found.result.matrices(expected))


@pytest.mark.parametrize(
    "options",
    [
        {"stride": 1},
        {"stride": 2, "padding": 1},
        {"stride": 2, "padding": "same"},
        {"stride": 2, "dilation": 2},
        {"stride": 2, "groups": 2},
        {"stride": (2, 3)},
        {},
    ],
)
def test_windows_that_overlap_or_are_padded_dilated_or_grouped_are_none(options: dict[str, Any]) -> None:
    assert patches(torch.Size((1, 4, 6, 6)), torch.Size((4, 4, 2, 2)), options) is None


def test_windows_that_leave_an_end_out_or_do_not_fit_are_none() -> None:
    assert patches(torch.Size((1, 4, 7, 6)), torch.Size((4, 4, 2, 2)), {"stride": 2}) is None
    assert patches(torch.Size((4, 6, 6)), torch.Size((4, 4, 2, 2)), {"stride": 2}) is None
    assert patches(torch.Size((1, 8, 6, 6)), torch.Size((4, 4, 2, 2)), {"stride": 2}) is None
