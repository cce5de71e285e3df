"""Networks compiled by MindSpore, compared with the same networks in PyNative mode and in PyTorch."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ms = pytest.importorskip("mindspore")

from msprobe_hooks import record  # noqa: E402
from tests.corpus.two_frameworks import in_mindspore, in_pytorch  # noqa: E402
from tests.support.runs import run_pytest  # noqa: E402

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
CULPRITS = {"mlp": "net-Mlp_down-Dense_MatMul", "cnn": "net-Cnn_conv2-Conv2d_Conv2D"}
Dumped = Callable[[str, str], Path]


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Dumped:
    """Run a network's step as a graph in a process of its own, once, with a fault or none; return the folder."""
    home = tmp_path_factory.mktemp("graphs")

    def dump(network: str, fault: str = "") -> Path:
        folder = home / f"{network}-{fault}"
        if not folder.exists():
            command = [sys.executable, "-m", "tests.corpus.two_frameworks.in_graph_mode", network, str(folder), fault]
            subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=240, env=os.environ)
        return folder

    return dump


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> Dumped:
    """Record a network's step call by call."""
    ms.set_context(mode=ms.PYNATIVE_MODE)
    home = tmp_path_factory.mktemp("calls")

    def dump(network: str, framework: str) -> Path:
        folder = home / f"{network}-{framework}"
        if not folder.exists():
            model, step = (in_mindspore if framework == "mindspore" else in_pytorch).network(network)
            with record(folder, level="mix", task="tensor", model=model, framework=framework):  # type: ignore[arg-type]
                step()
        return folder

    return dump


@pytest.mark.parametrize("framework", ["mindspore", "pytorch"])
@pytest.mark.parametrize("network", CULPRITS)
def test_an_equal_network_is_clean_and_a_changed_weight_named(
    pytester: pytest.Pytester, graph: Dumped, calls: Dumped, network: str, framework: str
) -> None:
    golden = ("--msprobe-golden", calls(network, framework))
    equal = run_pytest(pytester, "--msprobe-compare", graph(network, ""), *golden)
    equal.stdout.fnmatch_lines(["no compared call differs"])
    assert equal.parseoutcomes()["passed"] >= 10
    changed = run_pytest(pytester, "--msprobe-compare", graph(network, "weight"), *golden)
    changed.stdout.fnmatch_lines(
        [
            f"*first forward culprit: Kernel.*_{CULPRITS[network]}-op0.0.forward *",
            "    what it was given differs too: input.1 *",
        ]
    )
