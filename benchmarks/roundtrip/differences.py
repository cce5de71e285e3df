"""Compare recordings of the same step by msprobe and by msprobe_hooks, record by record.

    python benchmarks/roundtrip/differences.py [--family lstm ...] [--version 1.2.2 26.2.0]

Prints every class of difference with its count, an example and its reason. The exit status is 1 where there is a record
that only msprobe has, or a difference that no reason explains.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

from elements import compare_lists
from reasons import REASONS, extra_record, peer_only_record, supported, unequal_values
from record_all import ENVIRONMENTS, RECORDINGS, record

from tests.corpus.families import FAMILIES

Record = dict[str, Any]


def load(folder: Path) -> dict[str, Record]:
    """Return the records of a recording, in order."""
    (path,) = folder.glob("step0/*/dump.json")
    data: dict[str, Record] = json.loads(path.read_text())["data"]
    return data


def pairs(peer: dict[str, Record], ours: dict[str, Record], version: str) -> dict[str, str]:
    """Map msprobe's record names to ours where they name the same thing.

    Backward calls of a module are numbered as they arrive by msprobe and as their forward calls by us.
    """
    arrivals: dict[str, list[str]] = {}
    short: dict[str, str] = {}
    for name in ours:
        head, _, _ = name.rpartition(".")
        if name.startswith("Module.") and head.endswith(".backward"):
            arrivals.setdefault(head, []).append(name)
        parts = name.split(".")
        if len(parts) == 5 and not name.startswith("Module."):
            short[".".join([parts[0], *parts[2:]])] = name
    found = {}
    for name in peer:
        head, _, number = name.rpartition(".")
        if head in arrivals:
            candidate = dict(enumerate(arrivals[head])).get(int(number), name)
        elif name.endswith(".parameters_grad"):
            candidate = f"{name}.0"
        else:
            candidate = short.get(name, name) if version != "1.2.2" else name
        if candidate in ours:
            found[name] = candidate
    return found


def compare(version: str, family: str, level: str, task: str) -> Iterator[tuple[str, str]]:
    """Yield the class of each difference and where it is."""
    peer_folder = record(version, "msprobe", family, level, task)
    our_folder = record(version, "msprobe_hooks", family, level, task)
    peer, ours = load(peer_folder), load(our_folder)
    apis = supported(ENVIRONMENTS[version])
    plain = json.loads((record(version, "nothing", family, "L1", "statistics") / "step.json").read_text())
    if json.loads((our_folder / "step.json").read_text()) != plain:
        yield "recording changed our results", family
    peer_changed = json.loads((peer_folder / "step.json").read_text()) != plain
    if peer_changed:
        yield "recording changed the peer's results", family
    same = pairs(peer, ours, version)
    for name in peer:
        if name not in same:
            yield peer_only_record(name, version), name
        elif same[name] != name:
            yield "other name", f"{name} -> {same[name]}"
    mirrored = set(same.values())
    for name in ours:
        if name not in mirrored:
            yield extra_record(name, version, apis), name
    yield from order(list(same.values()), [name for name in ours if name in mirrored])
    for name, our_name in same.items():
        for kind in compare_record(name, peer[name], ours[our_name], version):
            yield unequal_values(kind, name, peer_changed=peer_changed), name


def order(peer: list[str], ours: list[str]) -> Iterator[tuple[str, str]]:
    """Yield the records that would have to move, of the forward and of the backward ones."""
    for direction, kind in ((".forward", "unexplained: order of forward records"), (".backward", "order")):
        mine = [name for name in ours if direction in name]
        theirs = [name for name in peer if direction in name]
        for change, first, last, *_ in SequenceMatcher(None, theirs, mine, autojunk=False).get_opcodes():
            if change in ("delete", "replace"):
                for name in theirs[first:last]:
                    yield kind, name


def compare_record(name: str, peer: Record, ours: Record, version: str) -> Iterator[str]:
    """Yield the class of each difference between two records of one call."""
    is_module = name.startswith("Module.")
    backward = ".backward" in name
    for key in peer.keys() | ours.keys():
        where = f"{'module' if is_module else 'call'} {'backward' if backward else 'forward'} {key}"
        if key not in peer:
            yield f"key {key}"
        elif key not in ours:
            yield f"unexplained: no key {key}"
        elif isinstance(peer[key], (list, dict)):
            yield from compare_lists(peer[key], ours[key], where, version)
        elif peer[key] != ours[key]:
            yield f"unexplained: {key}"


def main() -> None:
    """Compare all recordings and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--family", nargs="*", default=list(FAMILIES))
    parser.add_argument("--version", nargs="*", default=list(ENVIRONMENTS))
    parser.add_argument("--every", action="store_true", help="print each difference that is not explained")
    options = parser.parse_args()
    failed = False
    for version in options.version:
        for level, task in RECORDINGS:
            counts: Counter[str] = Counter()
            examples: dict[str, str] = {}
            for family in options.family:
                for kind, where in compare(version, family, level, task):
                    counts[kind] += 1
                    examples.setdefault(kind, f"{family}: {where}")
                    if options.every and kind not in REASONS:
                        print("   ", kind, family, where)
            print(f"\n{version}, level {level}, {task}")
            for kind, count in sorted(counts.items()):
                failed |= kind not in REASONS
                print(f"  {count:5} {kind}: {REASONS.get(kind, '?')} [{examples[kind]}]")
    sys.exit(failed)


if __name__ == "__main__":
    main()
