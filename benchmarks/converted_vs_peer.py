"""Trees of converted kernel files, against the batch compare of ``parse`` (``vc``) of mindstudio-probe 1.2.2.

Beside them runs a bare plugin with as many items as kernels here: what pytest takes for these, whoever fills them.

python benchmarks/converted_vs_peer.py [--rounds N] [--files N] [--tensors N] [--elements N] [--unequal SHARE]
"""

from __future__ import annotations

import argparse
import csv
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from shutil import rmtree

from bare_items import bare_items
from measure import PEER_PYTHON, Run, by_turns, middle, plugin_words, pytest_words, quote, run, scratch, table

# In a process of its own: what this one holds would be counted in the peaks of those it starts.
_WRITE_TREES = """
import sys, numpy as np
from pathlib import Path
folder, kernels, tensors, elements, unequal = Path(sys.argv[1]), *map(int, sys.argv[2:5]), float(sys.argv[5])
draw = np.random.default_rng(0)
for number in range(kernels):
    arrays = [draw.normal(size=elements).astype(np.float32) for _ in range(tensors)]
    differs = draw.random() < unequal
    for side, start in (("target", 10_000_000), ("golden", 70_000_000)):
        home = folder / side / f"layer{number}-MatMul" / str(start + number)
        home.mkdir(parents=True)
        for slot, array in enumerate(arrays):
            is_output = slot == tensors - 1
            off = np.float32(1 + 1e-6 * (differs and is_output and side == "target"))
            place = "output.0" if is_output else f"input.{slot}"
            np.save(home / f"MatMul.layer{number}-MatMul.3.7.{start + number}.{place}.npy", array * off)
"""

_COMPARE = """
import sys
from msprobe.pytorch.parse_tool.lib.compare import Compare
Compare().compare_converted_dir(*sys.argv[1:])
"""


def ours(folder: Path, *more: str | Path) -> Run:
    words = ("--msprobe-compare", folder / "target", "--msprobe-golden", folder / "golden", "--tb=no", "-rN")
    return run(plugin_words(*words, *more))


def peer(folder: Path) -> Run:
    tables = folder / "peer"
    tables.mkdir(exist_ok=True)
    return run([PEER_PYTHON, "-c", _COMPARE, folder / "target", folder / "golden", tables])


def rows_of(tables: Path) -> list[list[str]]:
    """Return the rows of the newest table, without its titles."""
    newest = max(tables.glob("batch_compare_*.csv"), key=lambda path: path.stat().st_mtime)
    with newest.open(encoding="utf-8-sig", newline="") as file:
        return [*csv.reader(file)][1:]


def agreement(folder: Path) -> str:
    """Say of how many files both tables tell that the same two were compared, and that they are or are not equal."""
    mine, other = ({tuple(row[:2]): row[4] for row in rows_of(folder / side)} for side in ("ours", "peer"))
    shared = mine.keys() & other.keys()
    same = sum(mine[pair] == other[pair] for pair in shared)
    return f"{len(mine)} rows here, {len(other)} of the peer; {len(shared)} of the same files, {same} told alike"


def measured(folder: Path, kernels: int, rounds: int) -> str:
    runs: dict[str, Callable[[], Run]] = {
        "pytest-msprobe, table": partial(ours, folder, "--msprobe-csv", folder / "ours"),
        "pytest-msprobe": partial(ours, folder),
        f"{kernels} bare items": partial(run, pytest_words(bare_items(kernels))),
    }
    if PEER_PYTHON.exists():
        runs["msprobe 1.2.2"] = partial(peer, folder)
    done = {name: middle(each) for name, each in by_turns(runs, rounds).items()}
    base = done["pytest-msprobe, table"]
    rows = [
        [name, f"{one.wall:.2f}", f"{one.cpu:.2f}", f"{one.cpu / base.cpu:.2f}", f"{one.peak:.0f}"]
        for name, one in done.items()
    ]
    for name, one in done.items():
        wanted = "at least 5" if name == "msprobe 1.2.2" else ""
        quote(f"{kernels} converted kernels: {name}", one.cpu / base.cpu, unit="x our CPU time", wanted=wanted)
    return table(["", "wall s", "CPU s", "CPU, times ours with table", "peak MiB"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=20_000, help="on each side")
    parser.add_argument("--tensors", type=int, default=4, help="of each kernel, the last of them its output")
    parser.add_argument("--elements", type=int, default=1024)
    parser.add_argument("--unequal", type=float, default=0.05, help="share of kernels whose output differs")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    kernels = options.files // options.tensors
    folder = scratch() / "converted"
    rmtree(folder, ignore_errors=True)
    sizes = (str(kernels), str(options.tensors), str(options.elements), str(options.unequal))
    run([sys.executable, "-c", _WRITE_TREES, folder, *sizes])
    print(f"{options.files} files on each side, {kernels} kernels, load {os.getloadavg()[0]:.1f}\n")
    print(measured(folder, kernels, options.rounds))
    if PEER_PYTHON.exists():
        print(agreement(folder))


if __name__ == "__main__":
    main()
