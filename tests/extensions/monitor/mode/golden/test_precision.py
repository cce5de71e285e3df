"""The dtype that a run computed in, read off extremes."""

import numpy as np
import pytest
import torch

from pytest_msprobe.extensions.monitor.golden.series_tolerance import UNIT_ROUNDOFF, dtype_of

_DTYPES = ("bfloat16", "float16", "float32", "float64")


def _extremes(dtype: str) -> np.ndarray:
    values = torch.from_numpy(np.random.default_rng(1).normal(size=60))
    return values.to(getattr(torch, dtype)).double().numpy()


@pytest.mark.parametrize("dtype", _DTYPES)
def test_extremes_show_the_dtype_that_holds_them(dtype: str) -> None:
    assert dtype_of(_extremes(dtype), 0.0) == dtype


@pytest.mark.parametrize("dtype", _DTYPES[:3])
def test_extremes_rounded_to_six_decimals_still_show(dtype: str) -> None:
    assert dtype_of(np.round(_extremes(dtype), 6), 1e-6) == dtype


def test_too_few_numbers_show_nothing() -> None:
    assert dtype_of(np.array([0.0, 1.0, 1.0, -1.0, np.nan, np.inf] * 10), 0.0) is None


def test_numbers_smaller_than_the_files_rounding_show_nothing() -> None:
    assert dtype_of(np.arange(1, 40) * 1e-6, 1e-6) is None


@pytest.mark.parametrize("dtype", _DTYPES)
def test_unit_roundoffs_are_half_of_torchs_eps(dtype: str) -> None:
    assert UNIT_ROUNDOFF[dtype] == torch.finfo(getattr(torch, dtype)).eps / 2
