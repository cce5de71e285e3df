"""Healthy cases: records of some folders judged on each correct device, under as many seeds as one likes.

A case is one record, forward or backward, on one device under one seed. Alarms are printed as they come.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from measure import quote, table
from verdict_quality import OWN, find

from msprobe_standards import Policy
from tests.corpus.correct_devices import CORRECT_DEVICES
from tests.corpus.trials import Bench, read_calls


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", type=Path, nargs="*", default=[OWN])
    parser.add_argument("--per-api", type=int, default=2, help="calls of each API and dump that are tried")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--policy", default="default")
    options = parser.parse_args()

    # The calls are small: more threads would mostly wait for each other.
    torch.set_num_threads(1)
    policy = Policy.load(options.policy)
    calls = read_calls([dump for folder in options.folders for dump in find(folder)], options.per_api)
    rows = []
    for seed in options.seeds:
        bench = Bench(calls, policy, seed)
        tallies = {"the CPU itself": bench.run(None)}
        tallies |= {device.name: bench.run(device) for device in CORRECT_DEVICES}
        for name, tally in tallies.items():
            for record, reason in tally.failed.items():
                print(f"alarm: seed {seed}, {name}, {record}: {reason}", flush=True)
        found = tallies.values()
        rows.append(
            [
                seed,
                sum(bool(tally.touched) for tally in found),
                sum(tally.judged for tally in found),
                sum(len(tally.touched) for tally in found),
                sum(len(tally.failed) for tally in found),
            ]
        )
        print(f"seed {seed}: {rows[-1][2]} cases, {rows[-1][4]} alarms", flush=True)
    print(table(["seed", "devices that differ", "cases", "with other bits", "alarms"], rows))
    totals = [sum(row[i] for row in rows) for i in (2, 3, 4)]
    quote(f"alarms in {totals[0]} cases on correct devices", totals[2], unit="", wanted="0")
    print(f"{len(calls)} calls: {totals[0]} cases, {totals[1]} with other bits, {totals[2]} alarms")


if __name__ == "__main__":
    main()
