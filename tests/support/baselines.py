"""Baselines of rules that not every file keeps yet: a JSON file of counts, by rule and file, that only shrink."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

Counts = Mapping[str, Mapping[str, int]]


def differences(baseline: Path, rule: str, counts: Counts, command: str) -> list[str]:
    """Return a line for each count of a rule that is not that of the baseline; the command lowers the baseline."""
    found, kept = counts[rule], json.loads(baseline.read_text())[rule]
    return [
        f"{key}: {found.get(key, 0)}, in the baseline {kept.get(key, 0)}: {_remedy(found, kept, key, command)}"
        for key in sorted(found.keys() | kept.keys())
        if found.get(key, 0) != kept.get(key, 0)
    ]


def lower(baseline: Path, counts: Counts) -> None:
    """Lower the counts of a baseline to those that are found."""
    kept: Counts = json.loads(baseline.read_text())
    lowered = {
        rule: {key: min(count, found[key]) for key, count in sorted(kept[rule].items()) if key in found}
        for rule, found in counts.items()
    }
    baseline.write_text(json.dumps(lowered, indent=1) + "\n")


def _remedy(found: Mapping[str, int], kept: Mapping[str, int], key: str, command: str) -> str:
    if found.get(key, 0) < kept.get(key, 0):
        return f"run `{command}`"
    return "mend the new one (of a file that moved, rename the entry)"
