"""Drawing the inputs of large calls: each element by its place, beside one generator for all as small ones have it.

    python benchmarks/drawing.py [--rows 32000 --width 4096 --tokens 1024] [--rounds 3]

CPU seconds and those of the clock, medians by turns, for one thread and for two.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from measure import quote, table

from msprobe_hooks.dump.reader import read_dump
from msprobe_hooks.dump.schema import TensorElement
from pytest_msprobe.engine.replay.call import Call, read_call
from pytest_msprobe.engine.replay.calls.arguments import build_arguments
from pytest_msprobe.engine.replay.inputs import large_tensors, random_tensors
from tests.support.dumps import forward, tensor, write_dump

THREADS = (1, 2)


def recorded(folder: Path, rows: int, width: int, tokens: int) -> Mapping[str, Call]:
    """Return calls of a normal table of bfloat16: of an embedding, and of a linear layer that reads all of it.

    The weight of another linear layer is spread evenly, as torch initializes it.
    """
    count, bound = rows * width, 1 / math.sqrt(width)
    normal = tensor(rows, width, dtype="bfloat16", low=-5.75, high=5.75, Mean=0.0, Norm=math.sqrt(count))
    norm = bound * math.sqrt(count / 3)
    even = tensor(rows, width, dtype="bfloat16", low=-bound, high=bound, Mean=0.0, Norm=norm)
    x, ids = tensor(1, width, dtype="bfloat16"), tensor(1, tokens, dtype="int64", low=0, high=rows - 1)
    records = {
        "Functional.embedding.0.forward": forward(ids, normal),
        "Functional.linear.0.forward": forward(x, normal),
        "Functional.linear.1.forward": forward(x, even),
    }
    dump = read_dump(write_dump(folder, records))
    names = ("embedding", "linear, normal weight", "linear, even weight")
    return {name: read_call(dump, record) for name, record in zip(names, records, strict=True)}


def of_one_generator(element: TensorElement) -> bool:
    """Tell of any tensor that it is small."""
    return False


def seconds(call: Call, threads: int, is_large: Callable[[TensorElement], bool]) -> tuple[float, float]:
    """Return the CPU seconds and those of the clock that a call's arguments take."""
    torch.set_num_threads(threads)
    kept = large_tensors.is_large
    large_tensors.is_large = random_tensors.is_large = is_large
    try:
        cpu, clock = time.process_time(), time.perf_counter()
        build_arguments(call, seed=0, real_data=False)
        return time.process_time() - cpu, time.perf_counter() - clock
    finally:
        large_tensors.is_large = random_tensors.is_large = kept


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, size in (("rows", 32000), ("width", 4096), ("tokens", 1024), ("rounds", 3)):
        parser.add_argument(f"--{name}", type=int, default=size)
    options = parser.parse_args()
    ways = {"one generator": of_one_generator, "by place": large_tensors.is_large}
    rows = []
    with TemporaryDirectory() as folder:
        for name, call in recorded(Path(folder), options.rows, options.width, options.tokens).items():
            for threads in THREADS:
                times: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
                for _ in range(options.rounds):
                    for way, is_large in ways.items():
                        times[way].append(seconds(call, threads, is_large))
                medians = [tuple(map(statistics.median, zip(*each, strict=True))) for each in times.values()]
                (cpu, clock), (new_cpu, new_clock) = medians
                rows.append([name, threads, *(f"{each:.3f}" for each in (cpu, new_cpu, clock, new_clock))])
                quote(f"drawing for {name}, {threads} threads: CPU time of one generator / by place", cpu / new_cpu)
    header = ["inputs of", "threads", *(f"{way}, {unit}" for unit in ("CPU s", "s") for way in ways)]
    print(table(header, rows))


if __name__ == "__main__":
    main()
