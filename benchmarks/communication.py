"""What judging communication costs: many ranks and records, all of them communication, with planted faults."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from measure import quote, run, scratch, table

Json = dict[str, Any]

FAULTS = ("none", "skipped", "corrupted", "swapped", "group")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=64, help="default: %(default)s")
    parser.add_argument("--records", type=int, default=5_000, help="of each rank, default: %(default)s")
    parser.add_argument("--faults", nargs="*", default=FAULTS, choices=FAULTS, help="default: all")
    options = parser.parse_args()

    rows = []
    for fault in options.faults:
        with TemporaryDirectory(dir=scratch()) as folder:
            odd = options.ranks // 2 + 1
            for rank in range(options.ranks):
                records = recorded(rank, options.ranks, options.records)
                write(Path(folder, "step0", f"rank{rank}"), planted(fault, records) if rank == odd else records)
            size = sum(path.stat().st_size for path in Path(folder).rglob("*.json"))
            words = ["-m", "pytest", "-p", "pytest_msprobe.plugin", "-q", "--tb=no", "--msprobe-communication"]
            judged = run([sys.executable, *words, folder])
        reported = judged.output.partition("first that differs: ")[2].splitlines()
        named = f"{reported[0]}: {reported[1].strip()[:120]}" if reported else "nothing differs"
        numbers = [f"{size / 2**20:.0f}", f"{judged.wall:.1f}", f"{judged.cpu:.1f}", f"{judged.peak:.0f}"]
        rows.append([f"{fault}, rank {odd}" if reported else fault, *numbers, named])
        size_of_run = f"{options.ranks} ranks x {options.records} communications, {fault}"
        quote(size_of_run, judged.cpu, unit="CPU s")
        quote(size_of_run, judged.peak, unit="MiB")
    print(f"{options.ranks} ranks x {options.records} records\n")
    print(table(["fault", "dumps MiB", "wall s", "CPU s", "peak MiB", "named"], rows))


def recorded(rank: int, ranks: int, count: int) -> dict[str, Json]:
    """Return the records of a rank: reductions in its half, and gathered, scattered and broadcast tensors."""
    half = ranks // 2
    group = group_of(range(half) if rank < half else range(half, ranks))
    records: dict[str, Json] = {}
    for i in range(count):
        kind, number = KINDS[i % 4], i // 4
        own, shared = tensor(1024, rank), tensor(1024, i)
        wide = tensor(1024 * ranks, i)
        bodies = {
            "all_reduce": body([own], [shared, group], group=group),
            "all_gather_into_tensor": body([None, own], [wide, own]),
            "reduce_scatter_tensor": body([None, tensor(1024 * ranks, rank)], [own, wide]),
            "broadcast": body([shared if rank == 0 else own], [shared, value(0)], src=value(0)),
        }
        records[f"Distributed.{kind}.{number}.forward"] = bodies[kind]
    return records


KINDS = ("all_reduce", "all_gather_into_tensor", "reduce_scatter_tensor", "broadcast")


def planted(fault: str, records: dict[str, Json]) -> dict[str, Json]:
    """Return a rank's records with a fault in the middle."""
    names = list(records)
    place = len(names) // 2 // 4 * 4 + 3
    name = names[place]
    if fault == "skipped":
        return {each: records[each] for each in names if each != name}
    if fault == "corrupted":
        return records | {name: records[name] | {"output": [tensor(1024, -1.0), value(0)]}}
    if fault == "swapped":
        names[place - 1], names[place] = names[place], names[place - 1]
        return {each: records[each] for each in names}
    if fault == "group":
        call = records[name]
        return records | {name: call | {"input_kwargs": call["input_kwargs"] | {"group": group_of(range(2))}}}
    return records


def body(args: list[Any], output: list[Any], **kwargs: Any) -> Json:
    return {"input_args": args, "input_kwargs": kwargs, "is_recompute": False, "output": output}


def tensor(size: int, at: float) -> Json:
    statistics = {"Max": at + 0.5, "Min": -at, "Mean": at / 3, "Norm": at * 7 + 1, "requires_grad": False}
    return {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [size, 4]} | statistics


def group_of(ranks: range) -> Json:
    return {"type": "torch.ProcessGroup", "group_ranks": list(ranks), "group_id": f"{hash(ranks):x}"}


def value(number: int) -> Json:
    return {"type": "int", "value": number}


def write(folder: Path, records: dict[str, Json]) -> None:
    folder.mkdir(parents=True)
    head = {"task": "statistics", "level": "L1", "framework": "pytorch", "dump_data_dir": None}
    (folder / "dump.json").write_text(json.dumps(head | {"data": records}))


if __name__ == "__main__":
    main()
