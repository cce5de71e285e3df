"""Networks compiled by MindSpore, compared with the same networks in PyNative mode and in PyTorch."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.nightly import nightly_but

ms = pytest.importorskip("mindspore")

from msprobe_hooks import record  # noqa: E402
from tests.corpus.two_frameworks import in_mindspore, in_pytorch  # noqa: E402
from tests.support.runs import run_pytest  # noqa: E402

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
CULPRITS = {"mlp": "net-Mlp_down-Dense_MatMul", "cnn": "net-Cnn_conv2-Conv2d_Conv2D"}
CULPRITS["gpt"] = "net-Gpt_blocks-CellList_1-Block_down-Dense_MatMul"
# What has a partner in PyTorch's run and in PyNative's.
PARTNERS = {"mlp": (10, 13), "cnn": (12, 14), "gpt": (73, 82)}
Dumped = Callable[..., Path]


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Dumped:
    """Run a network's step as a graph in a process of its own, once, with a fault or none; return the folder."""
    home = tmp_path_factory.mktemp("graphs")

    def dump(network: str, fault: str = "", steps: int = 1) -> Path:
        folder = home / f"{network}-{fault}-{steps}"
        if not folder.exists():
            program = [sys.executable, "-m", "tests.corpus.two_frameworks.in_graph_mode"]
            command = [*program, network, str(folder), fault, str(steps)]
            subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=600, env=os.environ)
        return folder

    return dump


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> Dumped:
    """Record a network's step call by call."""
    ms.set_context(mode=ms.PYNATIVE_MODE)
    home = tmp_path_factory.mktemp("calls")

    def dump(network: str, framework: str, steps: int = 1) -> Path:
        folder = home / f"{network}-{framework}-{steps}"
        if not folder.exists():
            model, step = (in_mindspore if framework == "mindspore" else in_pytorch).network(network)
            with record(folder, level="mix", task="tensor", model=model, framework=framework) as running:  # type: ignore[arg-type]
                for number in range(steps):
                    if number:
                        running.step()
                    if framework == "pytorch":
                        model.zero_grad()
                    step()
        return folder

    return dump


@pytest.mark.parametrize("framework", ["mindspore", "pytorch"])
@pytest.mark.parametrize("network", nightly_but(CULPRITS, "mlp"))
def test_an_equal_network_is_clean_and_a_changed_weight_named(
    pytester: pytest.Pytester, graph: Dumped, calls: Dumped, network: str, framework: str
) -> None:
    golden = ("--msprobe-golden", calls(network, framework))
    equal = run_pytest(pytester, "--msprobe-compare", graph(network, ""), *golden)
    equal.stdout.fnmatch_lines(["no compared call differs*"])
    assert equal.parseoutcomes()["passed"] >= PARTNERS[network][framework == "mindspore"]
    changed = run_pytest(pytester, "--msprobe-compare", graph(network, "weight"), *golden)
    changed.stdout.fnmatch_lines(
        [
            f"*first forward culprit: weight *; first read by Kernel.*_{CULPRITS[network]}-op0.0.forward",
        ]
    )


@pytest.mark.parametrize("mapping", ["cell: {down.Dense: w2.Linear}", "layer: {TopLayer: {down: w2}}"])
def test_steps_meet_and_a_mapping_file_names_a_layer(
    pytester: pytest.Pytester, graph: Dumped, calls: Dumped, tmp_path: Path, mapping: str
) -> None:
    renamed = tmp_path / "renamed"
    shutil.copytree(calls("mlp", "pytorch", 2), renamed)
    for file in renamed.glob("step*/rank/*.json"):
        file.write_text(file.read_text().replace("Module.down", "Module.w2"))
    for file in renamed.glob("step*/rank/dump_tensor_data/Module.down*"):
        file.rename(file.with_name(file.name.replace("Module.down", "Module.w2")))
    pytester.makefile(".yaml", names=mapping)
    words = ("--msprobe-compare", graph("mlp", "", 2), "--msprobe-golden", renamed)
    assert run_pytest(pytester, *words).parseoutcomes()["passed"] < 2 * PARTNERS["mlp"][0]
    mapped = run_pytest(pytester, *words, "--msprobe-mapping=names.yaml")
    mapped.stdout.fnmatch_lines(["no compared call differs*"])
    assert mapped.parseoutcomes()["passed"] == 2 * PARTNERS["mlp"][0]
