"""Arrays are measured by numpy as tensors are by torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from pytest_msprobe.modes.compare.measure.accumulate import equal_metrics, measure_arrays
from pytest_msprobe.modes.compare.measure.tensor_pairs import measure_tensors

FLOATS = ("float16", "float32", "float64")
INTEGERS = ("int8", "int32", "uint8", "bool")


@st.composite
def pairs(draw: st.DrawFn) -> list[Any]:
    shape = draw(arrays.array_shapes(min_dims=0, max_dims=3, max_side=4))
    kinds = draw(st.sampled_from([FLOATS, INTEGERS]))
    dtypes = (draw(st.sampled_from(kinds)) for _ in range(2))
    return [draw(arrays.arrays(dtype, shape)) for dtype in dtypes]


@settings(max_examples=200, deadline=None)
@given(pair=pairs())
def test_numpy_and_torch_measure_alike(pair: list[Any]) -> None:
    by_numpy = measure_arrays(*pair)
    by_torch = measure_tensors(*(torch.from_numpy(array.copy()) for array in pair))
    assert by_numpy.metrics == pytest.approx(by_torch.metrics, nan_ok=True)
    assert by_numpy.worst == by_torch.worst
    assert (by_numpy.max_golden, by_numpy.golden_norm) == (by_torch.max_golden, by_torch.golden_norm)


@given(array=arrays.arrays(st.sampled_from(FLOATS + INTEGERS), arrays.array_shapes(min_dims=0, max_side=4)))
def test_what_is_reported_for_equal_arrays_is_what_is_measured_of_them(array: Any) -> None:
    reported = equal_metrics(array.size, has_ulps=array.dtype.kind == "f")
    assert reported == pytest.approx(measure_arrays(array, array.copy()).scaled_metrics)


def test_more_than_one_part_is_measured_as_one() -> None:
    golden = np.arange(200_000, dtype=np.float32)
    target = golden.copy()
    target[166_666] += 4
    measured = measure_arrays(target, golden)
    assert measured.worst == (166_666,)
    assert (measured.metrics["max_abs_err"], measured.metrics["euclidean"]) == (4.0, 4.0)


@pytest.mark.parametrize("dtypes", [("float16", "float32"), ("float32", "float32"), (">f4", "float64")])
def test_several_parts_are_measured_by_numpy_as_by_torch(dtypes: tuple[str, str]) -> None:
    random = np.random.default_rng(5)
    golden = np.maximum(random.standard_normal((300, 500)), 0)
    target = (golden * (1 + 1e-3 * random.standard_normal(golden.shape))).astype(dtypes[0])
    golden = golden.astype(dtypes[1])
    native = torch.from_numpy(target.astype(target.dtype.newbyteorder("=")))
    assert measure_arrays(target, golden) == measure_tensors(native, torch.from_numpy(golden))


def test_kernels_are_compared_without_torch(pytester: pytest.Pytester, tmp_path: Path) -> None:
    from tests.support.dumps.static_graphs import GraphFolder, dense_step

    run = GraphFolder(tmp_path)
    dense_step(run, run.iteration(), np.ones((4, 2), np.float32))
    pytester.makeconftest(
        """
        import sys

        def pytest_unconfigure():
            print("torch is loaded:", "torch" in sys.modules)
        """
    )
    words = ("--msprobe-compare", str(run.folder), "--msprobe-golden", str(run.folder), "-s")
    pytester.runpytest_subprocess(*words).stdout.fnmatch_lines(["*torch is loaded: False"])
