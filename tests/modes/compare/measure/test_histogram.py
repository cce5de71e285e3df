"""Histograms of errors."""

from __future__ import annotations

import math

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from pytest_msprobe.modes.compare.measure.tensor_pairs import error_histogram
from pytest_msprobe.modes.compare.reports.html import BINS

VALUES = arrays.arrays(np.float32, arrays.array_shapes(max_dims=2, max_side=6), elements=st.floats(width=32))


def place(target: float, golden: float) -> int:
    """Return the bin of one element, computed element by element."""
    if target == golden or (math.isnan(target) and math.isnan(golden)):
        return 0
    if not (math.isfinite(target) and math.isfinite(golden)) or golden == 0:
        return len(BINS) - 1
    error = abs(target - golden) / abs(golden)
    return 1 + sum(error > 10.0**power for power in range(-9, 1))


@given(VALUES, st.data())
def test_every_element_is_counted_where_its_relative_error_lies(golden: np.ndarray, data: st.DataObject) -> None:
    noise = data.draw(arrays.arrays(np.float32, golden.shape, elements=st.sampled_from([0.0, 1e-7, 1e-4, 0.3, 5.0])))
    with np.errstate(all="ignore"):
        target = (golden * (1 + noise)).astype(np.float32)
    counts = [0] * len(BINS)
    for ours, theirs in zip(target.flat, golden.flat, strict=True):
        counts[place(float(ours), float(theirs))] += 1
    assert list(error_histogram(torch.from_numpy(target), torch.from_numpy(golden))) == counts


def test_there_is_a_word_for_every_bin() -> None:
    assert len(error_histogram(torch.ones(3), torch.ones(3))) == len(BINS)


def test_complex_and_integer_tensors_have_one_too() -> None:
    assert error_histogram(torch.tensor([1 + 1j, 2j]), torch.tensor([1 + 1j, 1j]))[0] == 1
    assert error_histogram(torch.tensor([1, 3]), torch.tensor([1, 2]))[-2:] == (1, 0)
