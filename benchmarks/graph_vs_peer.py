"""Draw the graphs of two recorded runs, against ``graph`` of mindstudio-probe 1.2.2 and ``graph_visualize`` of 26.2.0.

python benchmarks/graph_vs_peer.py [--rounds N] [--nodes N] [--large N]

The runs hold modules that hold modules that hold calls, forward and backward, with statistics. ``--large`` is how many
nodes are drawn next to ten times fewer, without the peers, to see that time and memory grow no faster.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Callable
from multiprocessing import Process
from pathlib import Path
from typing import Any

from compare_vs_peer import PEER26_PYTHON, peer, tensor
from measure import PEER_PYTHON, Run, by_turns, middle, quote, run, scratch, table

_INNER = 3
#: A block is its module, three modules with a call each, and a call; forward and backward.
_PER_BLOCK = 2 * (1 + 2 * _INNER + 1)

Json = dict[str, Any]


def written(folder: Path, nodes: int) -> Path:
    """Write two runs, in a process whose memory is not counted as what is measured later."""
    process = Process(target=write_runs, args=(folder, nodes))
    process.start()
    process.join()
    return folder


def write_runs(folder: Path, nodes: int) -> None:
    """Write two runs, the target's forward outputs a little off."""
    shutil.rmtree(folder, ignore_errors=True)
    for side, off in (("target", 1e-6), ("golden", 0.0)):
        calls, parents = _calls(nodes // _PER_BLOCK, off)
        # msprobe 1.2 expects a stack per record.
        frame = "File train.py, line {}, in forward, \n y = self.layer(x)"
        stacks = {name: [frame.format(number % 97)] for number, name in enumerate(calls)}
        top = {"task": "statistics", "level": "mix", "framework": "pytorch", "dump_data_dir": None, "data": calls}
        where = folder / side / "step0" / "rank0"
        where.mkdir(parents=True)
        for name, content in (("dump", top), ("construct", parents), ("stack", stacks)):
            (where / f"{name}.json").write_text(json.dumps(content, indent=1))
            (where / f"{name}.json").chmod(0o640)


def _calls(blocks: int, off: float) -> tuple[Json, Json]:
    calls: Json = {}
    parents: Json = {}
    for way, order in (("forward", range(blocks)), ("backward", range(blocks - 1, -1, -1))):
        for block in order:
            outer = f"Module.layers.{block}.Block.{way}.0"
            calls[outer], parents[outer] = _body(way, block, 1, off), None
            for place in range(_INNER):
                number = _INNER * block + place
                inner = f"Module.layers.{block}.fc{place}.Linear.{way}.0"
                calls[inner], parents[inner] = _body(way, number, 1, off), outer
                call = f"Functional.linear.{number}.{way}"
                calls[call], parents[call] = _body(way, number, 2, off), inner
            call = f"Torch.add.{block}.{way}"
            calls[call], parents[call] = _body(way, block, 2, 0.0), outer
    return calls, parents


def _body(way: str, number: int, inputs: int, off: float) -> Json:
    if way == "backward":
        return {"input": [tensor(number)], "output": [tensor(number)] * inputs}
    given = [tensor(number + i) for i in range(inputs)]
    return {"input_args": given, "input_kwargs": {}, "output": [tensor(number, Max=2 + number * 1e-3 + off)]}


def ours(folder: Path) -> Run:
    out = folder / "ours"
    shutil.rmtree(out, ignore_errors=True)
    command = "import sys; from pytest_msprobe.commands.main import main; sys.exit(main(sys.argv[1:]))"
    words = ["graph", folder / "target", "--golden", folder / "golden", "-o", out]
    return run([sys.executable, "-c", command, *words])


def peer26(folder: Path) -> Run:
    sides = ["-tp", folder / "target/step0/rank0", "-gp", folder / "golden/step0/rank0"]
    return run([PEER26_PYTHON.with_name("msprobe"), "graph_visualize", *sides, "-o", folder / "out26"])


def measured(title: str, runs: dict[str, Callable[[], Run]], rounds: int) -> str:
    done = {name: middle(each) for name, each in by_turns(runs, rounds).items()}
    base = next(iter(done.values()))
    rows = [
        [
            name,
            *(f"{one.wall:.2f}", f"{one.cpu:.2f}", f"{one.cpu / base.cpu:.1f}"),
            *(f"{one.peak:.0f}", f"{one.peak / base.peak:.1f}"),
        ]
        for name, one in done.items()
    ]
    first = next(iter(done))
    for name, one in done.items():
        quote(f"{title}: {name}", one.cpu / base.cpu, unit=f"x the CPU time of {first}")
        quote(f"{title}: {name}", one.peak / base.peak, unit=f"x the memory of {first}")
    header = ["", "wall s", "CPU s", f"CPU, times {first}", "peak MiB", f"peak, times {first}"]
    return f"{title}\n\n" + table(header, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--nodes", type=int, default=8_000)
    parser.add_argument("--large", type=int, default=100_000)
    arguments = parser.parse_args()
    folder = written(scratch() / "graphs", arguments.nodes)
    runs: dict[str, Callable[[], Run]] = {"pytest-msprobe": lambda: ours(folder)}
    if PEER_PYTHON.exists():
        runs["msprobe 1.2.2"] = lambda: peer(folder, "graph", "step0/rank0")
    if PEER26_PYTHON.exists():
        runs["msprobe 26.2.0"] = lambda: peer26(folder)
    print(measured(f"Two runs of {arguments.nodes} modules and calls, statistics", runs, arguments.rounds))
    small, large = (written(scratch() / f"graphs{count}", count) for count in (arguments.large // 10, arguments.large))
    both = {"a tenth": lambda: ours(small), f"{arguments.large} nodes": lambda: ours(large)}
    print(measured(f"Two runs of {arguments.large} modules and calls, and a tenth", both, 1))


if __name__ == "__main__":
    main()
