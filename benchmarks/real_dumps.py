"""Every dump of a folder on this CPU, seed by seed: what got a verdict, what was skipped why, and false alarms."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dumps import unpacked
from measure import logged, plugin_words, table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="searched for dump.json; packed tensor files are unpacked in a copy")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--frameworks", nargs="+", default=["pytorch"])
    options = parser.parse_args()

    folder = unpacked(options.folder)
    outcomes: dict[str, Counter[str]] = {}
    skips: Counter[str] = Counter()
    alarms: dict[str, Counter[int]] = {}
    for dump in find(folder, options.frameworks):
        name = str(dump.parent.relative_to(folder))
        outcomes[name] = Counter()
        for seed in range(options.seeds):
            words = plugin_words("--msprobe-dump", dump, "--msprobe-device", "cpu", "--msprobe-seed", str(seed))
            for item, log in logged(words).items():
                checked = log["checked"]
                outcome = checked["verdict"]["outcome"] if checked else "error"
                outcomes[name][outcome] += 1
                if outcome == "skip":
                    skips[checked["skip"]] += 1
                elif outcome != "pass":
                    reason = checked["verdict"]["reason"] if checked else "no result"
                    where = f"{name}/{item.rpartition('::')[2]}: {outcome}: {reason}"
                    alarms.setdefault(where, Counter())[seed] += 1

    print(f"{len(outcomes)} dumps, seeds 0 to {options.seeds - 1}\n")
    header = ["dump", "records", "verdict", "share", "skip", "warn", "fail"]
    print(table(header, [[name, *numbers(each)] for name, each in [*outcomes.items(), ("all", total(outcomes))]]))
    print(table(["skipped because", "records"], skips.most_common()))
    print(table(["alarm", "seeds"], [[where, " ".join(map(str, seeds))] for where, seeds in alarms.items()]))


def find(folder: Path, frameworks: list[str]) -> Iterator[Path]:
    """Yield the dumps that hold calls of these frameworks; module-only dumps have none."""
    for path in sorted(folder.rglob("dump.json")):
        content: dict[str, Any] = json.loads(path.read_bytes())
        if content["level"] != "L0" and content.get("framework", "pytorch") in frameworks:
            yield path


def total(outcomes: dict[str, Counter[str]]) -> Counter[str]:
    return sum(outcomes.values(), Counter())


def numbers(outcomes: Counter[str]) -> list[object]:
    records = outcomes.total()
    judged = records - outcomes["skip"]
    return [
        records,
        judged,
        f"{judged / max(records, 1):.1%}",
        outcomes["skip"],
        outcomes["warn"],
        outcomes["fail"] + outcomes["error"],
    ]


if __name__ == "__main__":
    main()
