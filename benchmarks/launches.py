"""What recording and checking ask of a card, counted: kernels, transfers and waits of the host. No card is needed.

    python benchmarks/launches.py [--dump DUMP]

The card is `tests.support.toy_accelerator`, a backend of torch whose library is compiled on first use. It counts each
operator that it is given as one kernel; a real card may use more for one of them. Counts say nothing of seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from measure import ROOT, plugin_words, quote, run, scratch, table

sys.path.insert(0, str(ROOT))

from tests.support.toy_accelerator import run_script, variables

EXAMPLE = ROOT / "examples" / "check_a_dump" / "dump.json"
OTHER = ("to card", "to host", "waits")

# A tensor of each kind measured alone, and what fetching its numbers takes.
MEASURED = """
import json, torch, torch_toy
from msprobe_hooks.torch.statistics import fetch, measure

values = torch.randn(256, 256)
kinds = {
    "float32": values, "float32, 100 elements": values[0, :100], "float32, part of another": values[:, 3:100],
    "float32, expanded": values.expand(4, 256, 256), "bfloat16": values.bfloat16(), "float64": values.double(),
    "float8": values.to(torch.float8_e4m3fn), "complex64": values.to(torch.complex64), "int64": values.long(),
    "bool": values > 0, "uint16": values.abs().to(torch.uint16), "uint64": values.abs().to(torch.uint64),
}
for name, tensor in kinds.items():
    # An expanded tensor would arrive as a copy, its repeats written out.
    there = tensor[0].to("toy").expand(tensor.shape) if "expanded" in name else tensor.to("toy")
    torch.toy.take_counts()
    waiting = measure(there)
    measuring = torch.toy.take_counts()
    fetch([waiting])
    print(json.dumps([name, measuring, torch.toy.take_counts()]))
"""

# A step plain and recorded; what comes until it ends, and what comes after.
STEPS = """
import contextlib, json, tempfile, torch, torch_toy
from pathlib import Path
import msprobe_hooks

torch.manual_seed(0)
class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.inside, self.last = torch.nn.LayerNorm(32), torch.nn.Linear(32, 96), torch.nn.Linear(32, 32)
    def forward(self, x):
        q, k, v = self.inside(self.norm(x)).chunk(3, -1)
        return x + self.last(torch.nn.functional.gelu((q @ k.transpose(1, 2) / 6).softmax(-1) @ v))

model = torch.nn.Sequential(torch.nn.Embedding(64, 32), Block(), Block(), torch.nn.Linear(32, 64)).to("toy")
optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
ids = torch.randint(0, 64, (4, 16)).to("toy")
def step():
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(ids).flatten(0, 1), ids.flatten()).backward()
    optimizer.step()

step()
torch.toy.take_counts()
step()
plain = torch.toy.take_counts()
with tempfile.TemporaryDirectory() as folder:
    ways = {
        "recorded, L1": dict(), "recorded, L0": dict(level="L0", model=model),
        "recorded, mix": dict(level="mix", model=model), "recorded, L1, md5": dict(summary_mode="md5"),
        "recorded, L1, tensors": dict(task="tensor"),
    }
    for number, (name, options) in enumerate(ways.items()):
        with msprobe_hooks.record(f"{folder}/{number}", **options):
            torch.toy.take_counts()
            step()
            within = torch.toy.take_counts()
        data = json.loads(next(Path(folder, str(number)).rglob("dump.json")).read_text())["data"]
        tensors = json.dumps(data).count('"type": "torch.Tensor"')
        print(json.dumps([name, len(data), tensors, plain, within, torch.toy.take_counts()]))
"""


def kernels(counts: Mapping[str, int]) -> int:
    """Return how many kernels were launched."""
    return sum(count for name, count in counts.items() if name not in OTHER)


def lines(script: str) -> Iterator[list[Any]]:
    """Yield what a script prints in a process that has the cards: lists, as JSON."""
    yield from map(json.loads, run_script(script).splitlines())


def measured() -> str:
    """Return the table of tensors."""
    rows = []
    for name, measuring, fetching in lines(MEASURED):
        rows.append([name, kernels(measuring), ", ".join(sorted(measuring)), kernels(fetching), fetching["waits"]])
    quote("kernels for a recorded tensor of float32", rows[0][1], unit="kernels", wanted="at most 4")
    return table(["256 x 256 elements", "kernels", "which", "kernels of the fetch", "waits of the fetch"], rows)


def stepped() -> str:
    """Return the table of steps."""
    rows = []
    for name, records, tensors, plain, within, after in lines(STEPS):
        added = kernels(within) - kernels(plain)
        waits = within.get("waits", 0) - plain.get("waits", 0)
        cells = [added, f"{added / records:.1f}", f"{added / tensors:.2f}", waits, kernels(after), after["waits"]]
        rows.append([name, records, tensors, *cells])
        quote(f"{name}: kernels / tensor", added / tensors, unit="kernels", wanted="at most 4")
        if "md5" not in name:
            quote(f"{name}: waits before the step ends", waits, unit="waits", wanted="0")
    columns = [
        "records",
        "tensors",
        "kernels",
        "a record",
        "a tensor",
        "waits",
        "kernels at its end",
        "waits at its end",
    ]
    return table(["a step", *columns], rows)


class CountItems:
    """A pytest plugin that writes what each item asked of the card: ``-p launches`` with ``LAUNCHES=FILE``."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._counts: dict[str, dict[str, int]] = {}

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Count."""
        import torch

        torch.toy.take_counts()
        result = yield
        self._counts[item.name] = torch.toy.take_counts()
        return result

    def pytest_sessionfinish(self) -> None:
        """Write."""
        self._path.write_text(json.dumps(self._counts))


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(CountItems(Path(os.environ["LAUNCHES"])))


def checked(dump: Path) -> str:
    """Return the table of the records of a dump that are checked on the card."""
    with TemporaryDirectory(dir=scratch()) as folder:
        path = Path(folder, "counts.json")
        there = variables()
        imported = os.pathsep.join([str(ROOT / "benchmarks"), there["PYTHONPATH"]])
        words = ["-p", "torch_toy", "-p", "launches", "--msprobe-dump", dump, "--msprobe-device", "toy", "--tb=no"]
        run(plugin_words(*words), env={**there, "PYTHONPATH": imported, "LAUNCHES": str(path)})
        counts = json.loads(path.read_text())
    data = json.loads(dump.read_bytes())["data"]
    rows = {"first of its kind": Counter[str](), "further": Counter[str]()}
    kinds: set[str] = set()
    for name, found in counts.items():
        kind = kind_of(name, data)
        row = rows["further" if kind in kinds else "first of its kind"]
        kinds.add(kind)
        going, coming = tensors_of(name, data)
        row.update(records=1, going=going, coming=coming, kernels=kernels(found))
        row.update({key: found.get(key, 0) for key in OTHER})
        row["beyond"] = max(row["beyond"], found["to card"] - going, found["to host"] - coming)
    further = rows["further"]
    quote("most transfers of a checked record beyond its tensors", further["beyond"], unit="transfers", wanted="1")
    keys = ("records", "going", "to card", "coming", "to host", "beyond", "waits", "kernels")
    header = ["records", "", "tensors in", "transfers in", "tensors out", "transfers out", "most beyond, one record"]
    return table([*header, "waits", "kernels"], [[name, *(row[key] for key in keys)] for name, row in rows.items()])


def tensors_of(name: str, data: Mapping[str, Any]) -> tuple[int, int]:
    """Return how many tensors a record has to bring to a card, and from there.

    A forward record brings arguments and returns outputs. For a backward record gradients arrive, and one comes back
    for each argument of its call that is differentiable: recordings leave out those that no one asked for.
    """
    record = data[name]
    if name.endswith(".forward"):
        return count([record["input_args"], record["input_kwargs"]]), count(record["output"])
    forward = data[name.removesuffix("backward") + "forward"]
    return count(record["input"]), count([forward["input_args"], forward["input_kwargs"]], of="float")


def count(part: Any, of: str = "") -> int:
    """Return how many tensors there are in a part of a record, ``of`` dtypes with this in their name."""
    if isinstance(part, dict):
        if "dtype" in part and "shape" in part:
            return of in part["dtype"]
        part = list(part.values())
    return sum(count(each, of) for each in part) if isinstance(part, list) else 0


def kind_of(name: str, data: Mapping[str, Any]) -> str:
    """Return what calls share that use the same kernels; the first runs twice, to see which of them the card lacks."""
    call, _, direction = name.rpartition(".")
    forward = data[f"{call}.forward"]
    arguments = without_sizes([forward["input_args"], forward["input_kwargs"]])
    return f"{call.rpartition('.')[0]} {direction} {json.dumps(arguments)}"


def without_sizes(part: Any) -> Any:
    """Return a part of a record with dtype and number of dimensions in place of each tensor."""
    if isinstance(part, dict):
        if "dtype" in part and "shape" in part:
            return [part["dtype"], len(part["shape"])]
        return {key: without_sizes(each) for key, each in part.items()}
    return [without_sizes(each) for each in part] if isinstance(part, list) else part


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dump", type=Path, default=EXAMPLE)
    options = parser.parse_args()
    print(measured())
    print(stepped())
    print(checked(options.dump))


if __name__ == "__main__":
    main()
