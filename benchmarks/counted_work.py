"""The work whose instructions ``instructions.py`` counts; it is run inside of callgrind, which counts little of it.

    valgrind --tool=callgrind --instr-atstart=no ... python counted_work.py CLIENT FOLDER

Each kind is done once uncounted, so that caches are filled, then counted for one item and for many: their difference
is what items cost, without start and end of a run. CLIENT is the library of ``callgrind.c``.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from compare_vs_peer import Json, tensor, write, write_matched

from msprobe_hooks import record

# How many items are counted beyond one. A call of the check is two items, forward and backward.
CHECKED, RECORDED, COMPARED = 20, 100, 50
_QUIET = ("-c", "/dev/null", "-p", "no:cacheprovider", "-q", "--tb=no", "-rN")


def checked(folder: Path, items: int) -> Callable[[], object]:
    """Return a run that checks so many records, forward and backward by turns, of small calls of two APIs."""
    calls = {
        "Functional.linear": ([tensor(1, shape=[16, 32]), tensor(2, shape=[8, 32]), tensor(3, shape=[8])], [16, 8]),
        "Tensor.__mul__": ([tensor(1, shape=[16, 32]), tensor(2, shape=[16, 32])], [16, 32]),
    }
    records: Json = {}
    for number in range(items // 2):
        api, (inputs, shape) = list(calls.items())[number % 2]
        output = [tensor(4, shape=shape)]
        records[f"{api}.{number}.forward"] = {"input_args": inputs, "input_kwargs": {}, "output": output}
        records[f"{api}.{number}.backward"] = {"input": output, "output": inputs}
    dump = write(folder / f"checked-{items}", records)
    return lambda: _pytest(folder, "--msprobe-dump", dump, "--msprobe-device", "cpu")


def recorded(folder: Path, records: int) -> Callable[[], object]:
    """Return a recording of a chain of small calls, half of the records forward and half backward."""

    def run() -> None:
        with record(folder / f"recorded-{records}"):
            y = torch.ones(8, 8, requires_grad=True)
            for _ in range(records // 2):
                y = y * 0.5
            y.sum().backward()

    return run


def compared(folder: Path, calls: int) -> Callable[[], object]:
    """Return a comparison of so many calls of three tensors, statistics, that agree."""
    runs = folder / f"compared-{calls}"
    write_matched(runs, calls)
    target, golden = (runs / side / "dump.json" for side in ("target", "golden"))
    return lambda: _pytest(folder, "--msprobe-compare", target, "--msprobe-golden", golden)


# What is counted, by the name under which its number is kept: the work, and how many items once and the other time.
WORK = {
    "checked item": (checked, 4, 4 + CHECKED),
    "recorded call": (recorded, 2, 2 + RECORDED),
    "compared call": (compared, 1, 1 + COMPARED),
}


def _pytest(folder: Path, *words: str | Path) -> None:
    code = pytest.main([*_QUIET, "-p", "pytest_msprobe.plugin", "--rootdir", str(folder), *map(str, words)])
    if code:
        raise SystemExit(f"the run that is counted ended with {code}: {' '.join(map(str, words))}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("client", type=Path)
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()

    torch.set_num_threads(1)
    callgrind = ctypes.CDLL(str(options.client))
    for name, (make, one, many) in WORK.items():
        make(options.folder / "uncounted", many)()
        for count in (one, many):
            run = make(options.folder / "counted", count)
            gc.collect()
            gc.disable()
            callgrind.start()
            run()
            callgrind.stop(f"{name}, {count}".encode())
            gc.enable()


if __name__ == "__main__":
    main()
