"""``pytest-msprobe show`` of two large files beside torch.testing.assert_close of the same files: CPU time and memory.

Each is a process of its own. What an empty process with the same imports takes is subtracted; both map their files.

python benchmarks/show.py [--elements N] [--rounds N]
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from measure import Run, by_turns, middle, quote, run, scratch, table

MIB = 2**20

_WRITE = """
import sys, numpy as np
folder, elements = sys.argv[1], int(sys.argv[2])
draw = np.random.default_rng(0)
golden = draw.standard_normal(elements, dtype=np.float32)
np.save(f"{folder}/golden.npy", golden)
np.save(f"{folder}/close.npy", golden * (1 + draw.standard_normal(elements, dtype=np.float32) * np.float32(1e-7)))
golden[elements // 3] += 1
np.save(f"{folder}/off.npy", golden)
"""

# Prints by how many bytes memory that is no file's grew, which the kernel counts beside the pages of the maps.
_WATCHED = """
import sys, threading
from pathlib import Path

def own():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("RssAnon"))

{imports}
before = greatest = own()
done = threading.Event()

def watch():
    global greatest
    while not done.wait(0.005):
        greatest = max(greatest, own())

watcher = threading.Thread(target=watch)
watcher.start()
{work}
done.set()
watcher.join()
print("grew", greatest - before)
"""

_IMPORTS = (
    "import numpy as np, torch, pytest_msprobe.show.writers, pytest_msprobe.show.pairs, pytest_msprobe.commands.main"
)
_ASSERT_CLOSE = """
one, other = (torch.from_numpy(np.load(name, mmap_mode="c")) for name in sys.argv[1:])
try:
    torch.testing.assert_close(one, other)
except AssertionError:
    pass
"""
_SHOW = "from pytest_msprobe.commands.main import main\nmain(['show', *sys.argv[1:]])"


def watched(work: str, *words: str | Path) -> Run:
    return run([sys.executable, "-c", _WATCHED.format(imports=_IMPORTS, work=work), *words])


def grown(done: Run) -> float:
    """Return by how many MiB a process grew beyond its maps."""
    return int(done.output.rpartition("grew ")[2]) / 1024


def measured(folder: Path, target: str, elements: int, rounds: int) -> str:
    files = (folder / f"{target}.npy", folder / "golden.npy")
    runs: dict[str, Callable[[], Run]] = {
        "nothing": partial(watched, "", *files),
        "assert_close": partial(watched, _ASSERT_CLOSE, *files),
        "show": partial(watched, _SHOW, *files),
        "show --map": partial(watched, _SHOW, *files, "--map"),
    }
    done = {name: middle(each) for name, each in by_turns(runs, rounds).items()}
    start = done.pop("nothing").cpu
    yardstick = done["assert_close"].cpu - start
    pair = 8 * elements / MIB
    rows = [
        [name, f"{one.cpu - start:.2f}", f"{(one.cpu - start) / yardstick:.2f}", *grown_cells(one, pair)]
        for name, one in done.items()
    ]
    for name, one in done.items():
        quote(f"{target}.npy: {name} / assert_close", (one.cpu - start) / yardstick)
        quote(f"{target}.npy: {name}, memory / the pair", grown(one) / pair)
    return table([f"{target}.npy", "CPU s", "ratio", "MiB beyond the maps", "of the pair"], rows)


def grown_cells(one: Run, pair: float) -> list[str]:
    return [f"{grown(one):.0f}", f"{grown(one) / pair:.3f}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--elements", type=int, default=64 * MIB)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    folder = scratch() / "show"
    folder.mkdir(exist_ok=True)
    run([sys.executable, "-c", _WRITE, folder, str(options.elements)])
    print(f"{options.elements / MIB:g} Mi float32 elements, load {os.getloadavg()[0]:.1f}\n")
    for target in ("close", "off"):
        print(measured(folder, target, options.elements, options.rounds))


if __name__ == "__main__":
    main()
