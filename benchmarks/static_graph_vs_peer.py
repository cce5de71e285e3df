"""Comparing two static graph dumps of MindSpore: this plugin against mindstudio-probe 26.2.0 ``compare --rank --step``.

The peer's environment is that of mindspore_vs_peer.py, ``.peer26-mindspore``. The graph runs in ``.venv-mindspore``.

python benchmarks/static_graph_vs_peer.py [--rounds N] [--layers N]
"""

from __future__ import annotations

import argparse
import csv
import math
import os
from pathlib import Path
from tempfile import TemporaryDirectory

from measure import ROOT, Run, by_turns, middle, plugin_words, quote, run, table

PEER = ROOT / ".peer26-mindspore" / "bin" / "msprobe"
MINDSPORE = ROOT / ".venv-mindspore" / "bin" / "python"

# One training step, of which a weight may be changed.
_GRAPH = """
import sys, numpy as np, mindspore as ms
from mindspore import Tensor, nn
from msprobe_hooks import record
out, layers, change = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
ms.set_context(mode=ms.GRAPH_MODE)
ms.set_seed(1)
blocks = [cell for _ in range(layers) for cell in (nn.Dense(16, 16), nn.LayerNorm((16,)), nn.ReLU())]
net = nn.SequentialCell(nn.Conv2d(1, 4, 3, pad_mode="valid"), nn.Flatten(), nn.Dense(144, 16), *blocks)
weight = net[2].weight.asnumpy().copy()
weight[1, 3] += change
net[2].weight.set_data(Tensor(weight))
optimizer = nn.Momentum(net.trainable_params(), 0.1, 0.9)
step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.CrossEntropyLoss()), optimizer).set_train()
data = np.random.default_rng(0).normal(size=(3, 1, 8, 8)).astype(np.float32)
with record(out, level="L2", task="tensor", framework="mindspore"):
    step(Tensor(data), Tensor(np.array([0, 1, 2], np.int32)))
"""

_VERDICT = "Accuracy Reached or Not"
_NUMBERS = ("NPU max", "NPU min", "NPU mean", "NPU l2norm", "Bench max", "Bench mean", "EucDist", "MaxAbsErr", "Cosine")


def dumped(folder: Path, layers: int, change: float) -> Path:
    """Record a step of a graph into a folder."""
    path = os.pathsep.join(map(str, (ROOT, ROOT / "hook_lib", ROOT / "standards")))
    run([MINDSPORE, "-c", _GRAPH, folder, str(layers), str(change)], env={"PYTHONPATH": path})
    return folder


def ours(target: Path, golden: Path, tables: Path) -> Run:
    words = ("--msprobe-compare", target, "--msprobe-golden", golden, "--tb=no", "-rN", "--msprobe-csv", tables)
    return run(plugin_words(*words, "--msprobe-policy", "msprobe-1.2"))


def peer(target: Path, golden: Path, tables: Path) -> Run:
    words = ["compare", "-tp", target, "-gp", golden, "--rank", "0", "--step", "0", "-o", tables]
    return run([PEER, *words])


def rows_of(tables: Path) -> dict[str, dict[str, str]]:
    """Return the rows of the newest table by the file that they are of, without its folder and suffix."""
    newest = max(tables.glob("*.csv"), key=lambda path: path.stat().st_mtime)
    with newest.open() as file:
        return {Path(row["NPU Name"]).name.removesuffix(".npy"): row for row in csv.DictReader(file)}


def agreement(own: dict[str, dict[str, str]], other: dict[str, dict[str, str]]) -> str:
    """Say how many rows both tables have, and in how many of those that the peer judges both tell the same."""
    shared = own.keys() & other.keys()
    # It judges neither scalars nor vectors of one element.
    judged = [name for name in shared if other[name][_VERDICT] in ("Yes", "No")]
    same = [name for name in judged if _is_same(own[name], other[name])]
    return (
        f"{len(own)} rows of ours, {len(other)} of the peer, {len(shared)} of the same file; the peer judges "
        f"{len(judged)} of them, of which {len(same)} have the same partner, numbers and verdict here"
    )


def _is_same(own: dict[str, str], other: dict[str, str]) -> bool:
    partners = {Path(row["Bench Name"]).name.removesuffix(".npy") for row in (own, other)}
    is_alike = len(partners) == 1 and own[_VERDICT] == other[_VERDICT]
    return is_alike and all(_is_close(own[title], other[title]) for title in _NUMBERS)


def _is_close(a: str, b: str) -> bool:
    """Tell whether two cells agree to the digits that the peer writes; of bool no mean and norm are taken here."""
    try:
        return math.isclose(float(a), float(b), rel_tol=1e-4, abs_tol=1e-6)
    except ValueError:
        return a == b or a == "N/A"


def compare(folder: Path, rounds: int, layers: int) -> None:
    """Record two runs, compare them by turns, and print what that took and whether both tell the same."""
    golden, target = dumped(folder / "golden", layers, 0.0), dumped(folder / "target", layers, 0.1)
    pairs = len([*golden.glob("rank_0/Net/*/0/*.npy")])
    tables = {name: folder / f"tables_{name}" for name in ("ours", "peer")}
    runs = {
        "pytest-msprobe": lambda: ours(target, golden, tables["ours"]),
        "msprobe 26.2.0": lambda: peer(target, golden, tables["peer"]),
    }
    done = {name: middle(each) for name, each in by_turns(runs, rounds).items()}
    base = done["pytest-msprobe"]
    rows = [
        [name, f"{one.wall:.2f}", f"{one.wall / base.wall:.1f}", f"{one.cpu:.2f}", f"{one.cpu / base.cpu:.1f}"]
        for name, one in done.items()
    ]
    ratio = done["msprobe 26.2.0"].cpu / base.cpu
    quote(f"{pairs} tensors of a static graph: msprobe 26.2.0", ratio, unit="x our CPU time")
    print(f"{pairs} tensors on each side, load {os.getloadavg()[0]:.1f}\n")
    print(table(["", "wall s", "wall, times ours", "CPU s", "CPU, times ours"], rows))
    print(agreement(rows_of(tables["ours"]), rows_of(tables["peer"])))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--layers", type=int, default=2)
    options = parser.parse_args()
    # MindSpore takes no path with a dot in it, as that of the other benchmarks' folder.
    with TemporaryDirectory(prefix="static-graph-") as folder:
        compare(Path(folder), options.rounds, options.layers)


if __name__ == "__main__":
    main()
