"""Decoder layers of a Llama, recorded and checked on the CPU in one process: CPU time over plain steps, memory.

    python benchmarks/decoder_layer.py [--tokens 128 --hidden 512] [--layers 1 4 16 32] [--modes screened stand-in]

They have their embedding, output projection and loss, all in bfloat16, and are those of a 7B Llama by default. Large
products are screened, but in the mode ``exact``, which is ``--msprobe-screening=off``. In the mode ``stand-in`` the
device returns what the CPU computed before and costs nothing. Time is reported per additional
layer, from several numbers of layers.
"""

from __future__ import annotations

import argparse
import math
import shutil
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from measure import ROOT, Run, logged_run, plugin_words, quote, scratch, step_seconds, table
from real_dumps import finished

from msprobe_hooks.dump.reader import read_dump
from msprobe_hooks.dump.schema import TensorElement, tensors_of

STEP = ROOT / "benchmarks" / "decoder_layer_step.py"
WANTED = {"exact": "", "screened": "at most 2.5", "stand-in": "at most 1.0"}
BYTES = {"bfloat16": 2, "float32": 4, "int64": 8, "bool": 1}
SHOWN = 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=1024)
    parser.add_argument("--hidden", type=int, default=4096, help="a multiple of 128, the size of a head")
    parser.add_argument("--intermediate", type=int, help="default: 11008, or that share of another hidden size")
    parser.add_argument("--vocabulary", type=int, default=32000)
    parser.add_argument("--modes", nargs="+", choices=WANTED, default=list(WANTED))
    parser.add_argument("--layers", nargs="+", type=int, default=[1])
    options = parser.parse_args()

    sizes = {"tokens": options.tokens, "hidden": options.hidden}
    sizes["intermediate"] = options.intermediate or options.hidden * 11008 // 4096
    sizes["vocabulary"] = options.vocabulary
    rows: list[list[object]] = []
    kinds: dict[str, list[list[object]]] = {}
    runs: defaultdict[str, dict[int, Run]] = defaultdict(dict)
    for layers in options.layers:
        step, dump = stepped({"layers": layers, **sizes})
        largest = largest_record(dump) / 2**20
        print(f"{layers} x {sizes}: a plain step takes {step:.2f} CPU s, the largest record holds {largest:.0f} MiB")
        for mode in options.modes:
            run, items = check(dump, mode)
            rows.append([layers, mode, *totals(run, items, step, largest)])
            runs[mode][layers], kinds[f"{mode}, {layers}"] = run, dearest(items)
            quote(f"decoder layer x {layers}, {mode}: CPU time / plain step", run.cpu / step, wanted=WANTED[mode])
            quote(f"decoder layer x {layers}, {mode}: peak memory / largest record", run.peak / largest)
    header = ["layers", "mode", "records", "not passed", "CPU s", "plain steps", "wall s", "peak MiB"]
    print(table([*header, "peak / largest record"], rows))
    for mode, by_layers in runs.items():
        if len(by_layers) > 1:
            print(table([f"{mode}: layers", "CPU s of each more", "peak MiB of each more"], growth(by_layers)))
    for kind, found in kinds.items():
        print(table([f"dearest kinds, {kind}", "records", "CPU s", "share"], found))


def stepped(sizes: Mapping[str, int]) -> tuple[float, Path]:
    """Record a step of layers of these sizes; return the CPU seconds of a plain one and the dump."""
    folder = scratch() / f"decoder-layer-{'-'.join(map(str, sizes.values()))}"
    shutil.rmtree(folder, ignore_errors=True)
    words = [str(folder), *(word for name, size in sizes.items() for word in (f"--{name}", str(size)))]
    step = step_seconds(Path(sys.executable), STEP, words, [ROOT / "hook_lib"])
    return step, folder / "step0" / "rank" / "dump.json"


def check(dump: Path, mode: str) -> tuple[Run, dict[str, dict[str, Any]]]:
    """Check the dump in a process, and return what that took and what each record came to."""
    words = plugin_words("--msprobe-dump", dump)
    if mode == "stand-in":
        results = dump.parent / "results"
        results.mkdir(exist_ok=True)
        words += ["-p", "stand_in", "--stand-in", results, "--msprobe-device"]
        logged_run([*words, "recording-cpu"])
        run, items = logged_run([*words, "stand-in"])
        shutil.rmtree(results)
    else:
        run, items = logged_run(
            [*words, "--msprobe-device", "cpu", *(["--msprobe-screening=off"] if mode == "exact" else [])]
        )
    print(f"checked, {mode}: {run.cpu:.1f} CPU s", file=sys.stderr)
    return run, items


def growth(runs: Mapping[int, Run]) -> list[list[object]]:
    """Return, for each number of layers but the least, what each layer more than the one before took."""
    rows: list[list[object]] = []
    for (fewer, before), (more, after) in zip(list(runs.items()), list(runs.items())[1:], strict=False):
        count = more - fewer
        seconds, memory = (after.cpu - before.cpu) / count, (after.peak - before.peak) / count
        rows.append([f"{fewer} to {more}", f"{seconds:.2f}", f"{memory:.1f}"])
    return rows


def totals(run: Run, items: Mapping[str, dict[str, Any]], step: float, largest: float) -> list[object]:
    """Return a mode's row, start-up included; ``step`` in CPU seconds, ``largest`` in MiB."""
    missed = sum(finished(log)[0] != "pass" for log in items.values())
    times = [f"{run.cpu:.1f}", f"{run.cpu / step:.2f}", f"{run.wall:.1f}"]
    return [len(items), missed, *times, f"{run.peak:.0f}", f"{run.peak / largest:.1f}"]


def dearest(items: Mapping[str, dict[str, Any]]) -> list[list[object]]:
    """Return the rows of the dearest kinds of record: API and direction."""
    seconds: defaultdict[str, list[float]] = defaultdict(list)
    for item, log in items.items():
        _, api, _, direction = item.rpartition("::")[2].split(".")
        seconds[f"`{api}` {direction}"].append(log["seconds"])
    total = sum(map(sum, seconds.values()))
    kinds = sorted(seconds.items(), key=lambda each: sum(each[1]), reverse=True)[:SHOWN]
    return [[kind, len(each), f"{sum(each):.2f}", f"{sum(each) / total:.0%}"] for kind, each in kinds]


def largest_record(path: Path) -> int:
    """Return the bytes of the tensors that the largest record of a dump holds."""
    dump, sizes = read_dump(path), []
    for name in dump.api_names:
        if name.endswith(".forward"):
            forward = dump.forward(name)
            sizes.append(held([*forward.args, *forward.kwargs.values(), *forward.output]))
        else:
            backward = dump.backward(name)
            sizes.append(held([*backward.grad_outputs, *backward.grad_inputs]))
    return max(sizes)


def held(elements: Sequence[Any]) -> int:
    """Return the bytes of the tensors among the elements of a record."""
    return sum(map(nbytes, tensors_of(elements)))


def nbytes(element: TensorElement) -> int:
    """Return the bytes of a recorded tensor."""
    return math.prod(element.shape) * BYTES[element.dtype.removeprefix("torch.")]


if __name__ == "__main__":
    main()
