"""The gradient probe on MindSpore's optimizers; numbers are computed again by numpy."""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ms = pytest.importorskip("mindspore")

from mindspore import Parameter, Tensor, nn  # noqa: E402

from msprobe_hooks import ConfigError  # noqa: E402
from msprobe_hooks.mindspore import PrecisionDebugger  # noqa: E402

Monitor = Callable[..., Path]


@pytest.fixture
def monitor(tmp_path: Path) -> Iterator[Monitor]:
    """Monitor an optimizer with a configuration of msprobe; return the folder of rank 0."""
    ms.set_context(mode=ms.PYNATIVE_MODE)

    def begin(optimizer: Any, **section: Any) -> Path:
        path = tmp_path / "config.json"
        path.write_text(json.dumps({"task": "grad_probe", "dump_path": str(tmp_path / "run"), "grad_probe": section}))
        PrecisionDebugger(path).monitor(optimizer)
        return tmp_path / "run" / "rank0"

    yield begin
    if PrecisionDebugger._instance is not None:
        PrecisionDebugger._instance._finish()


def table(rank: Path, step: int = 0) -> list[dict[str, str]]:
    with (rank / f"grad_summary_{step}.csv").open(encoding="utf-8-sig", newline="") as file:
        return list(csv.DictReader(file))


def optimizer_of(**shapes: tuple[int, ...]) -> Any:
    return nn.SGD([Parameter(Tensor(np.ones(shape, np.float32)), name=name) for name, shape in shapes.items()], 0.1)


def test_gradients_of_an_optimizer_are_written_as_those_of_pytorch(monitor: Monitor) -> None:
    optimizer = optimizer_of(w=(3, 4), b=(3,))
    rank = monitor(optimizer, grad_level="L2", bounds=[-1, 0.5])
    arrays = [np.random.default_rng(0).normal(size=shape).astype(np.float32) for shape in ((3, 4), (3,))]
    for _ in range(2):
        optimizer(tuple(map(Tensor, arrays)))
    assert sorted(path.name for path in rank.iterdir()) == [
        "grad_summary_0.csv",
        "grad_summary_1.csv",
        "step0",
        "step1",
    ]
    for name, array, row in zip(["w", "b"], arrays, table(rank, 1), strict=True):
        counts = np.bincount(np.searchsorted([-1, 0.5], array.ravel()), minlength=3)
        assert [float(row[key]) for key in list(row)[1:5]] == [*(counts / array.size), 0.0]
        assert (row["param_name"], float(row["max"]), float(row["min"])) == (name, array.max(), array.min())
        assert float(row["norm"]) == pytest.approx(np.linalg.norm(array.astype(np.float64)), rel=1e-6)
        np.testing.assert_array_equal(np.load(rank / "step1" / f"{name}.npy"), array > 0)


def test_the_calls_of_two_optimizers_are_counted_apart(monitor: Monitor) -> None:
    first, second = optimizer_of(a=(1,)), optimizer_of(b=(1,))
    monitor(first)
    rank = monitor(second)
    for _ in range(2):
        first((Tensor(np.ones(1, np.float32)),))
        second((Tensor(np.ones(1, np.float32)),))
    assert [row["param_name"] for step in range(2) for row in table(rank, step)] == ["a", "b", "a", "b"]


def test_half_precision_is_written_as_float32(monitor: Monitor) -> None:
    class Optimizer(nn.Cell):  # type: ignore[misc]
        def construct(self, gradients: Any) -> Any:
            return gradients

    optimizer = Optimizer()
    optimizer.parameters = [Parameter(Tensor(np.ones(2, np.float32)), name="w")]
    rank = monitor(optimizer, grad_level="L0")
    optimizer((Tensor(np.array([1, -2]), ms.bfloat16),))
    assert table(rank) == [
        {
            "param_name": "w",
            "MD5": hashlib.md5(np.array([1, -2], np.float32).tobytes()).hexdigest(),
            "max": "1.0",
            "min": "-2.0",
            "norm": str(float(np.sqrt(np.float32(5)))),
            "shape": "[2]",
        }
    ]


def test_what_is_no_optimizer_is_named(monitor: Monitor) -> None:
    with pytest.raises(ConfigError, match="optimizer is 'adam'; allowed: an optimizer of MindSpore"):
        monitor("adam")


def test_graph_mode_is_refused(monitor: Monitor) -> None:
    optimizer = optimizer_of(w=(1,))
    path = monitor(optimizer).parent
    ms.set_context(mode=ms.GRAPH_MODE)
    try:
        with pytest.raises(ConfigError, match="mode is 'GRAPH_MODE'"):
            PrecisionDebugger.monitor(optimizer)
    finally:
        ms.set_context(mode=ms.PYNATIVE_MODE)
    assert not path.exists()
