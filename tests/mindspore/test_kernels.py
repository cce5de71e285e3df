"""Kernels that MindSpore ran as graphs, dumped for real and checked."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.support.nightly import nightly_but
from tests.support.runs import check, run_pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
NETWORKS = ("lenet", "mlp", "gpt", "lstm", "embedding", "mint", "jit", "volumes")
Dumped = Callable[[str], Path]


@pytest.fixture(scope="module")
def dumped(tmp_path_factory: pytest.TempPathFactory) -> Dumped:
    """Train a network as a graph in a process of its own, once, and return the folder of the dump."""
    home = tmp_path_factory.mktemp("graphs")

    def dump(name: str) -> Path:
        if not (home / name).exists():
            command = [sys.executable, "-m", "tests.corpus.mindspore_kernels", name, str(home / name)]
            subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=600, env=os.environ)
        return home / name

    return dump


@pytest.mark.parametrize("name", nightly_but(NETWORKS, "lenet", "mlp", "gpt", "mint", "jit"))
def test_kernels_of_a_healthy_training_raise_no_alarm_and_most_are_judged(
    pytester: pytest.Pytester, dumped: Dumped, name: str
) -> None:
    result = run_pytest(pytester, "--msprobe-dump", dumped(name))
    outcomes = result.parseoutcomes()
    assert "failed" not in outcomes
    assert outcomes["passed"] / (outcomes["passed"] + outcomes["skipped"]) > 0.8


def test_a_step_is_judged_by_the_settings_that_the_text_of_the_graph_shows(
    pytester: pytest.Pytester, dumped: Dumped
) -> None:
    result = run_pytest(pytester, "--msprobe-dump", dumped("embedding"), "-k", "SGD_SGD")
    # What the parameters of the first iteration were, nothing tells.
    result.assert_outcomes(passed=4, skipped=4)


@pytest.mark.nightly
def test_two_workers_come_to_what_one_does(pytester: pytest.Pytester, dumped: Dumped) -> None:
    alone = run_pytest(pytester, "--msprobe-dump", dumped("embedding")).parseoutcomes()
    spread = run_pytest(pytester, "--msprobe-dump", dumped("embedding"), "-n", "2", apart=True).parseoutcomes()
    assert (spread["passed"], spread["skipped"]) == (alone["passed"], alone["skipped"])


def _one_element(x: NDArray[Any]) -> NDArray[Any]:
    flat = x.copy().reshape(-1)
    flat[flat.size // 2] += 0.05 * np.abs(flat).max()
    return flat.reshape(x.shape)


def _a_tile(x: NDArray[Any]) -> NDArray[Any]:
    flat = x.copy().reshape(-1)
    flat[: max(1, flat.size // 8)] *= np.float32(1.01)
    return flat.reshape(x.shape)


def _in_half_precision(x: NDArray[Any]) -> NDArray[Any]:
    return x.astype(np.float16).astype(np.float32)


@pytest.mark.parametrize("fault", [_one_element, _a_tile, _in_half_precision])
@pytest.mark.parametrize(
    ("network", "kind", "op", "side"),
    [
        ("lenet", "Conv2D", "Conv2D-op0", "output.0"),
        ("lenet", "Conv2DBackpropFilter", "Conv2DBackpropFilter-op0", "output.0"),
        ("lenet", "Conv2DBackpropInput", "Conv2DBackpropInput-op0", "output.0"),
        ("lenet", "BatchNormGrad", "BatchNormGrad-op0", "output.0"),
        ("lenet", "MatMul", "0-Dense_MatMul-op0", "output.0"),
        ("lenet", "ApplyMomentum", "ApplyMomentum-op0", "input.0"),
        ("gpt", "BatchMatMul", "BatchMatMul-op0", "output.0"),
        ("gpt", "LayerNormGrad", "LayerNormGrad-op0", "output.0"),
        ("gpt", "Softmax", "Softmax-op0", "output.0"),
        ("gpt", "Adam", "Adam-op0", "input.1"),
        ("lstm", "LSTM", "LSTM-op0", "output.0"),
        ("lstm", "LSTMGrad", "LSTMGrad-op0", "output.3"),
        ("lstm", "StridedSliceGrad", "StridedSliceGrad-op0", "output.0"),
        ("volumes", "Conv3DBackpropFilter", "Conv3DBackpropFilter-op0", "output.0"),
        ("volumes", "GroupNormGrad", "GroupNormGrad-op0", "output.0"),
    ],
)
def test_a_fault_in_what_a_kernel_left_is_found(
    pytester: pytest.Pytester,
    dumped: Dumped,
    tmp_path: Path,
    fault: Callable[[NDArray[Any]], NDArray[Any]],
    network: str,
    kind: str,
    op: str,
    side: str,
) -> None:
    target = tmp_path / "rank_0" / "Net"
    target.parent.mkdir(parents=True)
    (target.parent / "graphs").symlink_to(dumped(network) / "rank_0" / "graphs")
    for graph in (dumped(network) / "rank_0" / "Net").iterdir():
        (target / graph.name).parent.mkdir(parents=True, exist_ok=True)
        _linked(graph, target / graph.name)
    files = sorted(target.glob(f"*/1/{kind}.*{op}.*.{side}.*.npy"))
    file = files[0]
    before = np.load(file)
    file.unlink()
    np.save(file, fault(before))
    if side.startswith("input"):
        # What a step leaves stands there as the parameter at the end, too.
        parameters = target.glob("*/1/Parameter.*.npy")
        for parameter in [each for each in parameters if np.array_equal(np.load(each), before)]:
            parameter.unlink()
            np.save(parameter, fault(before))
    name = re.search(rf"{kind}\.(.+{re.escape(op)})\.", file.name)
    assert name is not None
    direction = "backward" if name[1].startswith("Gradients") else "forward"
    record = f"Kernel.{name[1]}.0.{direction}"
    assert check(pytester, f"--msprobe-dump={file.parent}::{record}").wrong == {record}


def _linked(source: Path, target: Path) -> None:
    for file in source.glob("*/*.npy"):
        place = target / file.parent.name / file.name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(file)
