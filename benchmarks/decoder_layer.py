"""One decoder layer of a 7B Llama, recorded and checked on the CPU in one process: CPU time over plain steps, memory.

    python benchmarks/decoder_layer.py [--tokens 128 --hidden 512] [--modes exact screened]

The layer has its embedding, output projection and loss, all in bfloat16. Large products are screened, but in the mode
``exact``, which is ``--msprobe-exact``.
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
MODES: Mapping[str, Sequence[str]] = {"exact": ("--msprobe-exact",), "screened": ()}
BYTES = {"bfloat16": 2, "float32": 4, "int64": 8, "bool": 1}
SHOWN = 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=1024)
    parser.add_argument("--hidden", type=int, default=4096, help="a multiple of 128, the size of a head")
    parser.add_argument("--intermediate", type=int, help="default: 11008, or that share of another hidden size")
    parser.add_argument("--vocabulary", type=int, default=32000)
    parser.add_argument("--modes", nargs="+", choices=MODES, default=list(MODES))
    options = parser.parse_args()
    intermediate = options.intermediate or options.hidden * 11008 // 4096

    sizes = {"tokens": options.tokens, "hidden": options.hidden, "intermediate": intermediate}
    sizes["vocabulary"] = options.vocabulary
    folder = scratch() / f"decoder-layer-{'-'.join(map(str, sizes.values()))}"
    shutil.rmtree(folder, ignore_errors=True)
    words = [str(folder), *(word for name, size in sizes.items() for word in (f"--{name}", str(size)))]
    step = step_seconds(Path(sys.executable), STEP, words, [ROOT / "hook_lib"])
    dump = folder / "step0" / "rank" / "dump.json"
    largest = largest_record(dump) / 2**20
    print(f"{sizes}: a plain step takes {step:.2f} CPU s, the largest record holds {largest:.0f} MiB of tensors\n")

    checked = {mode: check(dump, MODES[mode]) for mode in options.modes}
    rows = [totals(run, items, step, largest) for run, items in checked.values()]
    header = ["mode", "records", "not passed", "CPU s", "plain steps", "wall s", "peak MiB", "peak / largest record"]
    print(table(header, [[mode, *row] for mode, row in zip(checked, rows, strict=True)]))
    for mode, (run, items) in checked.items():
        print(table([f"dearest kinds, {mode}", "records", "CPU s", "share"], dearest(items)))
        quote(f"decoder layer, {mode}: CPU time / plain step", run.cpu / step, wanted="at most 2.5")
        quote(f"decoder layer, {mode}: peak memory / largest record", run.peak / largest)


def check(dump: Path, options: Sequence[str]) -> tuple[Run, dict[str, dict[str, Any]]]:
    """Check the dump in a process, and return what that took and what each record came to."""
    run, items = logged_run(plugin_words("--msprobe-dump", dump, "--msprobe-device", "cpu", *options))
    print(f"checked {' '.join(options) or 'with screening'}: {run.cpu:.1f} CPU s", file=sys.stderr)
    return run, items


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
