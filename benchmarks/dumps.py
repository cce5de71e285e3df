"""The dumps that the benchmarks run on: recorded by the peer where values matter, written here where only size does."""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import tarfile
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from shutil import copytree
from typing import TypeAlias

from measure import PEER_PYTHON, ROOT, scratch

# 996 calls of a GPT-2-like step, every tensor small.
SMALL = ["--layers", "31", "--hidden", "64", "--sequence", "32", "--vocabulary", "512"]
# The same model, wider: an addition takes microseconds, the last linear layer and its loss a thousand times as long.
UNEVEN = ["--layers", "24", "--hidden", "512", "--sequence", "256", "--vocabulary", "8192", "--batch", "4"]


def recorded(name: str, options: list[str]) -> Path:
    """Return the ``dump.json`` of a step that the peer records, made on first use."""
    folder = scratch() / name
    path = folder / "step0" / "rank" / "dump.json"
    if not path.exists():
        if not PEER_PYTHON.exists():
            raise SystemExit(
                f"{PEER_PYTHON.relative_to(ROOT)} is missing: the peer needs an environment of its own; make it with\n"
                "  python3.11 -m venv .peer && .peer/bin/pip install torch==2.13.0 mindstudio-probe==1.2.2"
                " service_identity transformers"
            )
        subprocess.run([PEER_PYTHON, ROOT / "benchmarks" / "peer" / "make_dump.py", folder, *options], check=True)
    return path


def call_count(path: Path) -> int:
    """Return how many API calls a dump holds: a call is a forward record with its backward record, if it has one."""
    return sum(name.endswith(".forward") for name in json.loads(path.read_bytes())["data"])


def large(records: int) -> Path:
    """Return a dump of so many records, 1.2 kB each, written on first use as a recording lays it out."""
    path = scratch() / f"large-{records}" / "dump.json"
    if not path.exists():
        write_records(path, _LARGE_CALLS, records)
    return path


# An API, the shapes of its arguments and that of its output.
Calls: TypeAlias = Sequence[tuple[str, list[list[int]], list[int]]]

_LARGE_CALLS: Calls = (
    ("Functional.linear", [[64, 256], [1024, 256], [1024]], [64, 1024]),
    ("Functional.layer_norm", [[8, 64, 256], [256], [256]], [8, 64, 256]),
    ("Torch.matmul", [[8, 4, 64, 64], [8, 4, 64, 64]], [8, 4, 64, 64]),
    ("Functional.batch_norm", [[8, 64, 32, 32], [64], [64], [64]], [8, 64, 32, 32]),
)


def write_records(path: Path, calls: Calls, records: int) -> None:
    """Write a dump of so many records as a recording lays it out: forward and backward, the calls by turns."""
    path.parent.mkdir(exist_ok=True)
    with path.open("w") as file:
        file.write('{\n "task": "statistics",\n "level": "L1",\n "framework": "pytorch",\n')
        file.write(' "dump_data_dir": null,\n "data": {\n')
        for position, (name, record) in enumerate(islice(_records(calls), records)):
            text = json.dumps(record, indent=1).replace("\n", "\n  ")
            file.write(f'{"," if position else ""}\n  "{name}": {text}')
        file.write("\n }\n}\n")


def _records(calls: Calls) -> Iterator[tuple[str, object]]:
    number = 0
    while True:
        for api, inputs, output in calls:
            arguments = [_tensor(shape) for shape in inputs]
            yield (
                f"{api}.{number}.forward",
                {"input_args": arguments, "input_kwargs": {}, "is_recompute": False, "output": [_tensor(output)]},
            )
            yield f"{api}.{number}.backward", {"input": [_tensor(output)], "output": arguments}
        number += 1


def _tensor(shape: list[int]) -> dict[str, object]:
    return {
        "type": "torch.Tensor",
        "dtype": "torch.float32",
        "shape": shape,
        "Max": 4.260558605194092,
        "Min": -4.175328254699707,
        "Mean": -0.0003665619296953082,
        "Norm": 181.0193359375,
        "requires_grad": True,
    }


def unpacked(folder: Path) -> Path:
    """Return a copy of a folder of dumps in which packed tensor files are unpacked, made on first use."""
    copy = scratch() / f"unpacked-{folder.resolve().name}"
    if not copy.exists():
        copytree(folder, copy, copy_function=_copy_writable)
        for archive in copy.rglob("dump_tensor_data.tar.xz"):
            with tarfile.open(archive) as packed:
                packed.extractall(archive.parent, filter="data")
    return copy


def unpack_into(target: Path, folders: list[Path]) -> None:
    """Write copies of folders of dumps, with their packed tensor files unpacked, below another folder."""
    for folder in folders:
        shutil.rmtree(target / folder.name, ignore_errors=True)
        copytree(unpacked(folder), target / folder.name, ignore=shutil.ignore_patterns("*.tar.xz"))


def _copy_writable(source: str, target: str) -> str:
    Path(target).write_bytes(Path(source).read_bytes())
    return target


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=unpack_into.__doc__)
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--into", type=Path, required=True)
    chosen = parser.parse_args()
    unpack_into(chosen.into, chosen.folders)
