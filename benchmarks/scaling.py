"""How a run scales with its workers: cards are simulated by items that wait, so that two cores drive 64 of them.

The waits are what the records of the published ResNet-50 step take on one core of a CPU, golden, target and judging
together. Efficiency is the share of the workers' time that is spent waiting. ``bare`` are plain pytest items that wait
as long, under xdist alone.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from pathlib import Path

from measure import ROOT, plugin_words, pytest_words, quote, run, scratch, table

_TIMES = ROOT / "benchmarks" / "resnet50_seconds.json"


def measured(workers: int, words: Sequence[str | Path]) -> dict[str, float]:
    """Return what the controller of one run measured."""
    log = scratch() / "scaling.json"
    log.unlink(missing_ok=True)
    folders = [str(ROOT / "benchmarks"), *filter(None, [os.environ.get("PYTHONPATH")])]
    run(
        [*words, "-p", "waiting_clock", "--waiting-log", log, "-p", "xdist.plugin", "-n", str(workers)],
        env={"PYTHONPATH": os.pathsep.join(folders)},
    )
    found: dict[str, float] = json.loads(log.read_text())
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4, 8, 64])
    parser.add_argument("--steps", type=int, default=4, help="recorded steps to check")
    parser.add_argument("--records", type=int, help="that many records in place of steps, for the controller's memory")
    parser.add_argument("--seconds", type=float, default=0.0, help="what each of these takes")
    options = parser.parse_args()

    seconds = [options.seconds] * options.records if options.records else json.loads(_TIMES.read_text()) * options.steps
    waits, bare_waits = scratch() / "waits.json", scratch() / "bare.waits"
    for path in (waits, bare_waits):
        path.write_text(json.dumps(seconds))
    rows = []
    for workers in options.workers:
        ours = measured(workers, plugin_words("-p", "waiting_items", "--waiting", waits))
        bare = measured(workers, pytest_words("-p", "waiting_bare", "--dist=worksteal", bare_waits))
        rows.append(
            [
                workers,
                f"{ours['wall']:.1f}",
                f"{sum(seconds) / ours['wall']:.2f}",
                f"{sum(seconds) / ours['wall'] / workers:.1%}",
                f"{sum(seconds) / bare['wall']:.2f}",
                f"{1e6 * ours['cpu'] / ours['items']:.0f}",
                f"{1e6 * bare['cpu'] / bare['items']:.0f}",
                f"{ours['cpu'] / ours['items'] / (bare['cpu'] / bare['items']):.2f}",
                f"{ours['peak']:.0f}",
            ]
        )
        print(*rows[-1], flush=True)
        quote(f"{workers} workers: efficiency", sum(seconds) / ours["wall"] / workers)
        quote(f"{workers} workers: controller, an item", 1e6 * ours["cpu"] / ours["items"], unit="CPU us")
    header = [
        "workers",
        "wall s",
        "times one",
        "efficiency",
        "bare",
        "controller us an item",
        "bare us",
        "ratio",
        "MiB",
    ]
    print(f"{len(seconds)} records that take {sum(seconds):.0f} s, the longest {max(seconds):.2f} s\n")
    print(table(header, rows))


if __name__ == "__main__":
    main()
