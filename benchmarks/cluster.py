"""What each job of an array costs that compares two runs of many ranks, and what a cluster needs for all of them.

    python benchmarks/cluster.py [--ranks 1024] [--steps 2] [--records 5000] [--shards 64]

Every rank and step has a folder of its own, whose dump is a link to one file, since a job reads a dump of that size
whatever is in it. Start-up, what grows with the number of folders, and what a dump costs are taken from jobs with one
and with four dumps; from these follows what a job of the array takes, which is then run.
"""

from __future__ import annotations

import argparse
import os
import shutil
from pathlib import Path

from compare_vs_peer import write_matched
from measure import Run, plugin_words, quote, run, scratch, table

SIDES = ("target", "golden")


def write_runs(folder: Path, ranks: int, steps: int, records: int) -> int:
    """Write two runs of as many ranks and steps; return the bytes of one dump."""
    write_matched(folder / "one", records)
    for side in SIDES:
        made = folder / "one" / side / "dump.json"
        for step in range(steps):
            for rank in range(ranks):
                place = folder / side / f"step{step}" / f"rank{rank}"
                place.mkdir(parents=True)
                os.link(made, place / "dump.json")
    return (folder / "one" / "target" / "dump.json").stat().st_size


def job(folder: Path, number: int, total: int, *more: str) -> Run:
    """Run one job of the array, with its journal."""
    journal = folder / "journal.jsonl"
    journal.unlink(missing_ok=True)
    sides = ("--msprobe-compare", folder / "target", "--msprobe-golden", folder / "golden")
    shard = f"--msprobe-shard={number}/{total}"
    return run(plugin_words(*sides, shard, f"--msprobe-journal={journal}", "--tb=no", "-rN", *more))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("ranks", 1024), ("steps", 2), ("records", 5000), ("shards", 64)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    folder = scratch() / "cluster"
    shutil.rmtree(folder, ignore_errors=True)
    size = write_runs(folder, options.ranks, options.steps, options.records)
    dumps = options.ranks * options.steps
    of_job = -(-dumps // options.shards)
    print(f"{dumps} dumps of {options.records} records and {size / 2**20:.1f} MiB on each side, {of_job} in each job")
    rows = []
    for name, more in (("equal or not", ["-omsprobe_compare_quick=true"]), ("call by call", [])):
        one, four = job(folder, 1, dumps, *more), job(folder, 1, dumps // 4, *more)
        seconds, memory = (four.cpu - one.cpu) / 3, (four.peak - one.peak) / 3
        expected = (one.cpu + (of_job - 1) * seconds, one.peak + (of_job - 1) * memory)
        measured = job(folder, 1, options.shards, *more)
        rows.append(
            [
                name,
                f"{one.cpu:.1f} s, {one.peak:.0f} MiB",
                f"{seconds:.2f} s, {memory:.1f} MiB",
                f"{expected[0]:.1f} s, {expected[1]:.0f} MiB",
                f"{measured.cpu:.1f} s, {measured.peak:.0f} MiB",
                f"{options.shards * measured.cpu / 3600:.2f}",
                f"{2 * of_job * size / 2**20 / measured.wall:.0f}",
            ]
        )
        quote(f"a job of {options.shards} comparing {dumps} dumps, {name}", measured.cpu, unit="s")
    shutil.rmtree(folder)
    header = ["question", "one dump", "each more", "a job by model", "a job", "core hours of all", "MiB/s a job reads"]
    print(table(header, rows))


if __name__ == "__main__":
    main()
