"""Every dump of a folder on this CPU, seed by seed: what got a verdict, what was skipped why, and false alarms."""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dumps import unpacked
from measure import logged, plugin_words, quote, table

SHOWN_ALARMS = 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="searched for dump.json; packed tensor files are unpacked in a copy")
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(10)))
    parser.add_argument("--frameworks", nargs="+", default=["pytorch"])
    options = parser.parse_args()

    folder = unpacked(options.folder)
    chosen = list(find(folder, options.frameworks))
    outcomes: defaultdict[str, Counter[str]] = defaultdict(Counter)
    skips: Counter[str] = Counter()
    alarms: defaultdict[str, list[int]] = defaultdict(list)
    start = time.perf_counter()
    for seed in options.seeds:
        named = [word for dump in chosen for word in ("--msprobe-dump", dump)]
        items = logged(plugin_words(*named, "--msprobe-device", "cpu", "--msprobe-seed", str(seed)))
        for item, log in items.items():
            path, _, record = item.partition("::")
            dump = path.partition(f"{folder.name}/")[2].removesuffix("/dump.json")
            outcome, reason = finished(log)
            outcomes[dump][outcome] += 1
            if outcome == "skip":
                skips[reason] += 1
            elif outcome != "pass":
                alarms[f"{dump}/{record}: {outcome}: {reason}"].append(seed)

    total = sum(outcomes.values(), Counter[str]())
    alarmed = total["fail"] + total["warn"]
    quote(f"records of {len(chosen)} dumps that fail or warn on this CPU", alarmed, unit="", wanted="0")
    seeds = " ".join(map(str, options.seeds))
    print(f"{len(chosen)} dumps, seeds {seeds}: {time.perf_counter() - start:.0f} s, one process, one thread\n")
    rows = [[name, *numbers(each)] for name, each in [*outcomes.items(), ("all", sum(outcomes.values(), Counter()))]]
    print(table(["dump", "records", "verdict", "share", "skip", "warn", "fail"], rows))
    if skips:
        print(table(["skipped because", "records"], skips.most_common()))
    if alarms:
        shown = list(alarms.items())[:SHOWN_ALARMS]
        print(
            table([f"alarm ({len(alarms)} records)", "seeds"], [[where, " ".join(map(str, at))] for where, at in shown])
        )


def find(folder: Path, frameworks: list[str]) -> Iterator[Path]:
    """Yield the dumps that hold calls of these frameworks; module-only dumps have none."""
    for path in sorted(folder.rglob("dump.json")):
        content: dict[str, Any] = json.loads(path.read_bytes())
        if content["level"] != "L0" and content.get("framework", "pytorch") in frameworks:
            yield path


def finished(log: dict[str, Any]) -> tuple[str, str]:
    """Return an item's outcome and its reason; an item without a verdict is an alarm."""
    checked = log.get("checked")
    if not checked:
        return "fail", log.get("failure", "the item was not run")
    return checked["verdict"]["outcome"], checked["skip"] or checked["verdict"]["reason"]


def numbers(outcomes: Counter[str]) -> list[object]:
    records = outcomes.total()
    judged = records - outcomes["skip"]
    return [records, judged, f"{judged / max(records, 1):.1%}", outcomes["skip"], outcomes["warn"], outcomes["fail"]]


if __name__ == "__main__":
    main()
