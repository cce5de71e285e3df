"""Compare two recorded runs, against ``compare`` of mindstudio-probe 1.2.2 and 26.2.0.

python benchmarks/compare_vs_peer.py [--rounds N] [statistics] [unmatched] [tensors] [small_tensors]
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bare_items import bare_items
from measure import PEER_PYTHON, ROOT, Run, by_turns, middle, plugin_words, pytest_words, quote, run, scratch, table

PEER26_PYTHON = ROOT / ".peer26" / "bin" / "python"
CALLS, UNMATCHED, UNMATCHED_BY_PEER = 8_000, 20_000, 1_200
TENSORS, ELEMENTS = 40, 1 << 22
SMALL_TENSORS, SMALL_ELEMENTS = 20_000, 1 << 10

Json = dict[str, Any]


def tensor(number: int, **fields: Any) -> Json:
    statistics = {"Max": 1 + number * 1e-3, "Min": -1.0, "Mean": 0.01, "Norm": 3 + number * 1e-4}
    return {
        "type": "torch.Tensor",
        "dtype": "torch.float32",
        "shape": [4, 8],
        **statistics,
        "requires_grad": True,
        **fields,
    }


def write(folder: Path, records: Json, task: str = "statistics") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "dump.json"
    envelope = {"task": task, "level": "L1", "framework": "pytorch", "dump_data_dir": None}
    path.write_text(json.dumps(envelope | {"data": records}, indent=1))
    path.chmod(0o640)
    return path


def write_matched(folder: Path, count: int) -> None:
    """Write two runs of three values a call, the target's outputs a little off."""
    for side, off in (("target", 1e-6), ("golden", 0.0)):
        write(
            folder / side,
            {
                f"Functional.linear.{i}.forward": {
                    "input_args": [tensor(i), tensor(i)],
                    "input_kwargs": {},
                    "output": [tensor(i, Max=2 + i * 1e-3 + off)],
                }
                for i in range(count)
            },
        )


def write_half_matched(folder: Path, count: int) -> None:
    """Write two runs of which every other call has no partner."""
    for side in ("target", "golden"):
        names = (f"Functional.{'linear' if i % 2 else side}.{i}.forward" for i in range(count))
        value = {"input_args": [tensor(0), tensor(1)], "input_kwargs": {}, "output": [tensor(2)]}
        write(folder / side, dict.fromkeys(names, value))


_WRITE_TENSORS = """
import sys, torch
folder, count, elements, off = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
for i in range(count):
    values = torch.randn(elements, generator=torch.Generator().manual_seed(i)) * (1 + off)
    torch.save(values, f"{folder}/Torch.relu.{i}.forward.output.0.pt")
"""


def write_tensors(folder: Path, count: int, elements: int) -> None:
    """Write two runs with one tensor a call."""
    for side, off in (("target", 1e-6), ("golden", 0.0)):
        names = [f"Torch.relu.{i}.forward" for i in range(count)]
        records = {
            name: {
                "input_args": [],
                "input_kwargs": {},
                "output": [tensor(0, shape=[elements], data_name=f"{name}.output.0.pt")],
            }
            for name in names
        }
        data = folder / side / "dump_tensor_data"
        data.mkdir(parents=True, exist_ok=True)
        write(folder / side, records, "tensor")
        run([sys.executable, "-c", _WRITE_TENSORS, data, str(count), str(elements), str(off)])
        for file in data.iterdir():
            file.chmod(0o640)


def comparison(folder: Path, *more: str | Path) -> list[str | Path]:
    target, golden = (folder / side / "dump.json" for side in ("target", "golden"))
    return plugin_words("--msprobe-compare", target, "--msprobe-golden", golden, "--tb=no", "-rN", *more)


def ours(folder: Path, *more: str | Path) -> Run:
    return run(comparison(folder, *more))


def ours_with_workbook(folder: Path) -> Run:
    return ours(folder, "--msprobe-xlsx", folder / "ours")


def peer(folder: Path, command: str = "compare", place: str = "dump.json") -> Run:
    """Have msprobe 1.2.2 set two runs next to each other; ``place`` is that of either below its folder."""
    config = folder / f"{command}.json"
    paths = {"npu_path": str(folder / "target" / place), "bench_path": str(folder / "golden" / place)}
    config.write_text(json.dumps(paths | {"is_print_compare_log": False}))
    config.chmod(0o640)
    return run([PEER_PYTHON, "-m", "msprobe.msprobe", "-f", "pytorch", command, "-i", config, "-o", folder / "out12"])


def peer26(folder: Path) -> Run:
    words = ["compare", "-tp", folder / "target/dump.json", "-gp", folder / "golden/dump.json", "-o", folder / "out26"]
    return run([PEER26_PYTHON.with_name("msprobe"), *words])


def measured(title: str, folder: Path, rounds: int, peers: bool = True, items: int = 0) -> str:
    """Return a table of runs by turns; ``items`` asks for as many items that do nothing as well."""
    runs: dict[str, Callable[[], Run]] = {
        "pytest-msprobe": lambda: ours_with_workbook(folder),
        "pytest-msprobe, no workbook": lambda: ours(folder),
    }
    if items:
        bare = pytest_words("--tb=no", "-rN", bare_items(items))
        runs["bare items"] = lambda: run(bare)
    if peers and PEER_PYTHON.exists():
        runs["msprobe 1.2.2"] = lambda: peer(folder)
    if peers and PEER26_PYTHON.exists():
        runs["msprobe 26.2.0"] = lambda: peer26(folder)
    done = {name: middle(each) for name, each in by_turns(runs, rounds).items()}
    base = done["pytest-msprobe"]
    rows = [
        [name, f"{one.wall:.2f}", f"{one.cpu:.2f}", f"{one.cpu / base.cpu:.1f}", f"{one.peak:.0f}"]
        for name, one in done.items()
    ]
    for name, one in done.items():
        quote(f"{title}: {name}", one.cpu / base.cpu, unit="x our CPU time")
    return f"{title}\n\n" + table(["", "wall s", "CPU s", "CPU, times ours", "peak MiB"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", default=["statistics", "unmatched", "tensors", "small_tensors"])
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    base = scratch() / "compare"
    if "statistics" in arguments.cases:
        write_matched(base / "matched", CALLS)
        title = f"{CALLS} matched calls, {3 * CALLS} rows, statistics"
        print(measured(title, base / "matched", arguments.rounds, items=CALLS))
    if "unmatched" in arguments.cases:
        write_half_matched(base / "half", UNMATCHED)
        title = f"{UNMATCHED} calls on each side, half of which match nothing"
        print(measured(title, base / "half", arguments.rounds, peers=False))
        write_half_matched(base / "half_small", UNMATCHED_BY_PEER)
        title = f"{UNMATCHED_BY_PEER} calls on each side, half of which match nothing"
        print(measured(title, base / "half_small", arguments.rounds))
    if "tensors" in arguments.cases:
        write_tensors(base / "tensors", TENSORS, ELEMENTS)
        title = f"{TENSORS} tensors of {ELEMENTS * 4 / 2**20:.0f} MiB"
        print(measured(title, base / "tensors", arguments.rounds))
    if "small_tensors" in arguments.cases:
        write_tensors(base / "small_tensors", SMALL_TENSORS, SMALL_ELEMENTS)
        title = f"{SMALL_TENSORS} tensors of {SMALL_ELEMENTS * 4 / 2**10:.0f} KiB"
        print(measured(title, base / "small_tensors", arguments.rounds))


if __name__ == "__main__":
    main()
