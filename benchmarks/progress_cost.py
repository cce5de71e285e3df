"""What the line of progress costs: CPU seconds an item on a terminal, by turns with it and without it in one run."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys

from bare_items import bare_items
from measure import ROOT, plugin_words, quote, run, scratch, table

sys.path.insert(0, str(ROOT))

from tests.support.dumps import forward, tensor, write_dump

# Runs a command on a terminal of its own.
ON_A_TERMINAL = "import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, default=20_000)
    options = parser.parse_args()

    blocks = measured(options.items)
    # The first blocks are before anything is drawn.
    on, off = blocks["with"][2:], blocks["without"][2:]
    added = [1000 * (with_it - without) for with_it, without in zip(on, off, strict=False)]
    quarters = statistics.quantiles(added, n=4)
    rows = [[way, f"{1000 * statistics.median(found):.3f}"] for way, found in (("with", on), ("without", off))]
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores, {options.items} items\n")
    print(table(["line of progress", "CPU an item, ms (median of blocks)"], rows))
    quote("what the line of progress adds to an item", quarters[1], unit="CPU ms")
    told = f"median of {len(added)} pairs; quartiles {quarters[0]:.4f}, {quarters[2]:.4f}"
    print(f"added: {quarters[1]:.4f} ms an item ({told})")


def measured(count: int) -> dict[str, list[float]]:
    """Return the CPU seconds an item of each block with the line and of each without."""
    folder = scratch() / "progress"
    folder.mkdir(exist_ok=True)
    (folder / "dump.json").unlink(missing_ok=True)
    log = folder / "blocks.json"
    # There is progress to be told of where there is a dump; of a search for overflow no device is started.
    dump = write_dump(folder, {"Torch.abs.0.forward": forward(tensor(4))})
    words = plugin_words(bare_items(count), f"--msprobe-overflow={dump}")
    words += ["-p", "progress_toggle", "--progress-log", log]
    # Nor is there any in a quiet run.
    words.remove("-q")
    path = os.pathsep.join([str(ROOT / "benchmarks"), os.environ.get("PYTHONPATH", "")])
    run([sys.executable, "-c", ON_A_TERMINAL, *words], env={"TERM": "xterm", "PYTHONPATH": path})
    blocks: dict[str, list[float]] = json.loads(log.read_text())
    return blocks


if __name__ == "__main__":
    main()
