"""Checking a dump of small records: this plugin against mindstudio-probe 1.2.2 ``run_ut``, one process and thread each.

The peer collects all garbage after every call, which is nearly all of its time, so it is measured as it is and with
that left out. As it is it takes minutes: it then visits an even sample of the calls with all of them loaded, and its
time is start-up plus the sample's time scaled to all calls; ``--sample 0`` runs it whole.
"""

from __future__ import annotations

import argparse
import json
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from dumps import SMALL, call_count, recorded
from measure import PEER_PYTHON, ROOT, Run, by_turns, middle, plugin_words, quote, run, scratch, table


def peer(dump: Path, *, sample: int = 0, collection: bool = True) -> Run:
    """Run the peer on a dump; a sample's wall seconds are scaled to the whole dump."""
    with TemporaryDirectory(dir=scratch()) as folder:
        timings = Path(folder, "timings.json")
        done = run(
            [
                *(PEER_PYTHON, ROOT / "benchmarks" / "peer" / "run_ut_on_cpu.py"),
                *("--timings", timings, "--sample", str(sample)),
                *(() if collection else ("--no-collection",)),
                *("-f", "pytorch", "run_ut", "-api_info", dump, "-o", folder),
            ]
        )
        numbers = json.loads(timings.read_text())
    scale = numbers["calls"] / numbers["visited"] - 1
    extra = numbers["calls_took"] * scale
    return Run(done.wall + extra, done.cpu + extra, done.peak, done.output)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sample", type=int, default=60, help="calls the peer visits as it is; 0: all")
    parser.add_argument("--dump", type=Path, help="default: 996 calls of a GPT-2-like step, recorded on first use")
    options = parser.parse_args()

    dump = options.dump.resolve() if options.dump else recorded("small", SMALL)
    ours = "pytest --msprobe-dump"
    runs = by_turns(
        {
            ours: partial(run, plugin_words("--msprobe-dump", dump, "--msprobe-device", "cpu")),
            "peer as it is": partial(peer, dump, sample=options.sample),
            "peer without its garbage collection": partial(peer, dump, collection=False),
        },
        options.rounds,
    )
    medians = {name: middle(each) for name, each in runs.items()}
    calls = call_count(dump)
    rows = [
        [
            name,
            f"{each.wall:.2f}",
            f"{each.cpu:.2f}",
            f"{calls / each.wall:.1f}",
            f"{each.wall / medians[ours].wall:.2f}",
            f"{each.peak:.0f}",
        ]
        for name, each in medians.items()
    ]
    print(f"{calls} calls, medians of {options.rounds} rounds, start-up included")
    if options.sample:
        print(f"(the peer as it is: scaled from {options.sample} calls)")
    print()
    print(table(["what", "wall s", "CPU s", "calls/s", "time, ours = 1", "peak MiB"], rows))
    for name, wanted in (("peer as it is", 60), ("peer without its garbage collection", 2.0)):
        ratio = medians[name].wall / medians[ours].wall
        quote(f"checking {calls} calls, {name} / ours", ratio, wanted=f"at least {wanted}")


if __name__ == "__main__":
    main()
