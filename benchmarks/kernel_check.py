"""Checking the kernels of a static graph of MindSpore: per kernel, start-up aside, and what comes of them.

The graph, one training step of a small network, runs in ``.venv-mindspore``; the check needs no MindSpore.

python benchmarks/kernel_check.py [--rounds N] [--layers N]
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from tempfile import TemporaryDirectory

from measure import by_turns, middle, plugin_words, quote, run, table
from static_graph_vs_peer import dumped


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--layers", type=int, default=4)
    options = parser.parse_args()
    # MindSpore takes no path with a dot in it.
    with TemporaryDirectory(prefix="kernels-") as folder:
        graph = dumped(Path(folder) / "graph", options.layers, 0.0)
        kernels = len([*graph.glob("rank_0/Net/*/0/*.output.0.*.npy")]) - len(
            [*graph.glob("rank_0/Net/*/0/Parameter*")]
        )
        words = ("--msprobe-dump", graph, "--msprobe-device", "cpu", "--tb=no", "-q")
        runs = {
            "all": lambda: run(plugin_words(*words)),
            "one": lambda: run(plugin_words(*words, "-k", "Default and Conv2D and forward")),
        }
        done = {name: middle(each) for name, each in by_turns(runs, options.rounds).items()}
    whole, one = done["all"], done["one"]
    milliseconds = [1000 * (a - b) / kernels for a, b in ((whole.wall, one.wall), (whole.cpu, one.cpu))]
    print(whole.output.strip().splitlines()[-1])
    print(f"\nmedians of {options.rounds} rounds, load {os.getloadavg()[0]:.1f}\n")
    quote(f"a kernel of {kernels}, start-up aside", milliseconds[1], unit="CPU ms")
    row = [str(kernels), f"{whole.cpu:.1f}", f"{one.cpu:.1f}", *(f"{each:.1f}" for each in milliseconds)]
    titles = ["kernels", "CPU s", "of it start-up", "ms per kernel, wall", "ms per kernel, CPU"]
    print(table(titles, [[*row]]))


if __name__ == "__main__":
    main()
