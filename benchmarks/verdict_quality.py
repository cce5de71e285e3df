"""Planted faults and correct devices over the dumps of some folders: what a policy finds, misses and alarms on.

Writes the tables of ``benchmarks/RESULTS.md``, below the line that says so.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from dumps import unpacked
from measure import ROOT, quote, table

from msprobe_standards import Policy
from tests.corpus.correct_devices import CORRECT_DEVICES
from tests.corpus.fault import Variant
from tests.corpus.faults import FAULTS
from tests.corpus.trials import Bench, Tally, read_calls

OWN = ROOT / "tests" / "data" / "verdict_quality"
MARK = "<!-- Everything below is written by benchmarks/verdict_quality.py. -->\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", type=Path, nargs="*", default=[ROOT / "tests" / "data" / "dumps", OWN])
    parser.add_argument("--per-api", type=int, default=2, help="calls of each API and dump that are tried")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--policy", default="default")
    parser.add_argument("-o", "--output", type=Path, help="a document whose part below the mark is replaced")
    options = parser.parse_args()

    # The calls are small: more threads would mostly wait for each other.
    torch.set_num_threads(1)
    policy = Policy.load(options.policy)
    benches = [Bench(read_calls(find(folder), options.per_api), policy, options.seed) for folder in options.folders]
    for folder, bench in zip(options.folders, benches, strict=True):
        healthy = bench.run(None)
        print(f"{folder}: {len(bench.calls)} calls, the healthy CPU fails {len(healthy.failed)}")
    text = report([folder.resolve().name for folder in options.folders], benches)
    if options.output is None:
        print(text)
    else:
        written = options.output.read_text(encoding="utf-8").partition(MARK)[0]
        options.output.write_text(f"{written}{MARK}\n{text}", encoding="utf-8")


def find(folder: Path) -> list[Path]:
    """Return the dumps of a folder, unpacked where their tensor files are packed."""
    packed = any(folder.rglob("dump_tensor_data.tar.xz"))
    return sorted((unpacked(folder) if packed else folder).rglob("dump.json"))


def report(names: list[str], benches: list[Bench]) -> str:
    faults = {fault: [bench.run(fault) for bench in benches] for fault in FAULTS}
    devices = {device: [bench.run(device) for bench in benches] for device in CORRECT_DEVICES}
    parts = ["## Summary\n", *summary(names, faults, devices)]
    missed = [
        [fault.name, fault.meaning, *map(share, tallies)]
        for fault, tallies in faults.items()
        if any(tally.touched and not tally.found for tally in tallies)
    ]
    parts += ["\n## Missed\n", table(["fault", "meaning", *names], missed) if missed else "None.\n"]
    rows = [[fault.name, fault.meaning, *map(share, tallies)] for fault, tallies in faults.items()]
    parts += ["\n## Faults\n", "Records that failed, of those whose results the fault changed.\n"]
    parts.append(table(["fault", "meaning", *names], rows))
    rows = [[each.name, each.meaning, *map(alarms, tallies)] for each, tallies in devices.items()]
    parts += ["\n## Correct devices\n", "Alarms, of the records whose results differ in at least one bit.\n"]
    parts.append(table(["device", "meaning", *names], rows))
    return "\n".join(parts)


def summary(names: list[str], faults: dict[Variant, list[Tally]], devices: dict[Variant, list[Tally]]) -> list[str]:
    lines = []
    for i, name in enumerate(names):
        shown = [tallies[i] for tallies in faults.values() if tallies[i].touched]
        found = sum(bool(tally.found) for tally in shown)
        differing = [tallies[i] for tallies in devices.values() if tallies[i].touched]
        quote(f"{name}: of {len(shown)} planted faults found", 100 * found / len(shown), unit="%")
        alarms = sum(len(tallies[i].failed) for tallies in devices.values())
        quote(f"{name}: alarms on {len(differing)} correct devices", alarms, unit="", wanted="0")
        lines.append(
            f"* `{name}`: {found} of the {len(shown)} faults that it can show are found "
            f"({100 * found / len(shown):.1f} %); {alarms} alarms on the {len(differing)} correct devices that differ."
        )
    return lines


def share(tally: Tally) -> str:
    return f"{len(tally.found)} of {len(tally.touched)}" if tally.touched else "not shown"


def alarms(tally: Tally) -> str:
    return f"{len(tally.failed)} of {len(tally.touched)}" if tally.touched else "no difference"


if __name__ == "__main__":
    main()
