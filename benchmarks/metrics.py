"""Time and memory of the metrics of large tensors beside torch.testing.assert_close; the cost of small verdicts."""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from measure import quote, table

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "standards"))

import torch

import msprobe_standards
from msprobe_standards import judge, measure

MIB = 2**20


def seconds(function: Callable[[], object]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def resident() -> int:
    """Return this process's resident bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def extra_memory(function: Callable[[], object]) -> int:
    """Return by how many bytes the process grows while the function runs, sampled every 2 ms."""
    before = highest = resident()
    done = threading.Event()

    def watch() -> None:
        nonlocal highest
        while not done.wait(0.002):
            highest = max(highest, resident())

    watcher = threading.Thread(target=watch)
    watcher.start()
    function()
    done.set()
    watcher.join()
    return highest - before


def large(elements: int, rounds: int) -> str:
    generator = torch.Generator().manual_seed(0)
    golden = torch.randn(elements, generator=generator)
    target = golden * (1 + torch.randn(elements, generator=generator) * 1e-7)
    pair = 2 * golden.nbytes
    both: dict[str, Callable[[], object]] = {
        "torch.testing.assert_close": lambda: torch.testing.assert_close(target, golden),
        "measure, every metric": lambda: measure(target, golden),
    }
    times: dict[str, list[float]] = {name: [] for name in both}
    for number in range(rounds + 1):
        for name in list(both)[:: -1 if number % 2 else 1]:
            times[name].append(seconds(both[name]))
    # The first round pays for page faults and thread start-up.
    medians = {name: statistics.median(values[1:]) for name, values in times.items()}
    yardstick = medians["torch.testing.assert_close"]
    rows = []
    for name, function in both.items():
        extra = extra_memory(function)
        ratio = f"{medians[name] / yardstick:.2f}"
        rows.append([name, f"{medians[name]:.2f}", ratio, f"{extra / MIB:.0f}", f"{extra / pair:.3f}"])
        if function is both["measure, every metric"]:
            quote("every metric of a large pair / assert_close", medians[name] / yardstick, wanted="at most 2")
            quote("memory for every metric / the pair", extra / pair, wanted="at most 0.25")
    header = [f"{elements // MIB} Mi float32 elements", "median s", "ratio", "extra MiB", "extra / pair"]
    return table(header, rows)


def small(rounds: int) -> str:
    header = ["healthy float32 elements", "equal bits, µs", "ulp, µs", "benchmark, µs", "every metric, µs"]
    return table(header, [small_row(elements, rounds) for elements in (100, 1000, 4000)])


def small_row(elements: int, rounds: int) -> list[object]:
    golden = torch.randn(elements, dtype=torch.float64)
    exact = golden.float()
    target = (golden * (1 + torch.randn(elements, dtype=torch.float64) * 3e-8)).float()
    ulp, benchmark = msprobe_standards.standard("ulp"), msprobe_standards.standard("benchmark")
    functions: list[Callable[[], object]] = [
        lambda: judge(exact, golden, standard=ulp),
        lambda: judge(target, golden, standard=ulp),
        lambda: judge(target, golden, standard=benchmark),
        lambda: measure(target, golden),
    ]
    medians = [statistics.median(seconds(function) for _ in range(rounds)) for function in functions]
    return [elements, *(f"{1e6 * median:.0f}" for median in medians)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--elements", type=int, default=64 * MIB, help="elements of the large pair (default: 64 Mi)")
    parser.add_argument("--rounds", type=int, default=5, help="timed rounds of the large pair (default: 5)")
    options = parser.parse_args()
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads; measure uses one\n")
    print(large(options.elements, options.rounds))
    print(small(2000))


if __name__ == "__main__":
    main()
