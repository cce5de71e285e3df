"""Statistics on the host are those that torch's meter gives of the same numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from msprobe_hooks.extensions.monitor.watch.batched_statistics import Meter
from msprobe_hooks.extensions.monitor.watch.config import STATISTICS
from msprobe_hooks.extensions.monitor.watch.mindspore_watcher import measure


@pytest.mark.parametrize(
    "array",
    [
        np.random.default_rng(0).normal(size=(7, 33)).astype(np.float32),
        np.array([0.0, -3.0, 1e-9, 6e-8], dtype=np.float16),
        np.array([1.0, math.nan, -2.0]),
        np.array([math.inf, 1.0], dtype=np.float32),
        np.array([3, -4, 0]),
        np.array([True, False]),
        np.array(-2.5, dtype=np.float32),
        np.array([3 + 4j, 0], dtype=np.complex64),
        np.zeros((0, 3), dtype=np.float32),
        np.array([1e-40, 1.0, 0.0], dtype=np.float32),
    ],
    ids=["float32", "float16", "nan", "inf", "integers", "bool", "one number", "complex", "empty", "subnormal"],
)
def test_statistics_of_arrays_are_those_of_tensors(array: Any) -> None:
    meter = Meter(STATISTICS, 1e-8)
    (expected,) = meter.fetch(meter.measure([torch.from_numpy(array)]))
    assert measure(array, STATISTICS, 1e-8) == pytest.approx(expected, rel=1e-6, nan_ok=True)
