"""Recorded training steps of a small GPT-2 against plain ones: this project, mindstudio-probe 1.2.2 and 26.2.

Each tool records in a process of its own, by turns, through the same ``PrecisionDebugger`` and ``config.json``. The
numbers are CPU seconds of a step over those of a plain step in the same environment; medians.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path

from measure import ROOT, quote, step_seconds, table

SCRIPT = ROOT / "benchmarks" / "peer" / "recorded_steps.py"
ENVIRONMENTS = {"1.2.2": ROOT / ".peer", "26.2": ROOT / ".peer26"}
KINDS = {
    "L1 statistics": ("--level", "L1"),
    "L0 statistics": ("--level", "L0"),
    "mix statistics": ("--level", "mix"),
    "L1 md5": ("--level", "L1", "--summary-mode", "md5"),
    "L1 tensors": ("--level", "L1", "--task", "tensor"),
    "L1, stopped": ("--level", "L1", "--stopped"),
    "overflow_check": ("--task", "overflow_check"),
    "free_benchmark, add_noise": ("--task", "free_benchmark", "--pert-mode", "add_noise"),
}

# Tasks that a version does not take, or under other names.
LACKED = {"26.2": ("overflow_check", "free_benchmark, add_noise")}

# The most that a recorded step may take, as a multiple of a plain one.
WANTED = {
    "L1 statistics": "at most 1.4",
    "L0 statistics": "at most 1.1",
    "mix statistics": "at most 1.5",
    "L1 md5": "at most 1.6",
    "L1, stopped": "at most 1.02",
}


def seconds(environment: Path, tool: str, kind: tuple[str, ...], steps: int) -> float:
    """Return the median CPU seconds of a step, recorded by a tool or plain."""
    words = ["--tool", tool, "--steps", str(steps), *kind]
    return step_seconds(environment / "bin" / "python", SCRIPT, words, [ROOT / "hook_lib"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--versions", nargs="+", choices=ENVIRONMENTS, default=list(ENVIRONMENTS))
    options = parser.parse_args()
    rows = []
    for name in options.kinds:
        kind = KINDS[name]
        versions = [version for version in options.versions if name not in LACKED.get(version, ())]
        if not versions:
            continue
        runs: dict[str, list[float]] = {}
        for _ in range(options.rounds):
            for version in versions:
                environment = ENVIRONMENTS[version]
                plain = seconds(environment, "none", (), options.steps)
                runs.setdefault(version, []).append(
                    seconds(environment, "msprobe.pytorch", kind, options.steps) / plain
                )
            runs.setdefault("ours", []).append(seconds(environment, "msprobe_hooks", kind, options.steps) / plain)
        shown = (f"{statistics.median(runs[each]):.2f}" if each in runs else "" for each in ("ours", *options.versions))
        rows.append([name, *shown])
        print(rows[-1], flush=True)
        quote(f"{name}: recorded step / plain step", statistics.median(runs["ours"]), wanted=WANTED.get(name, ""))
        for version in versions:
            quote(f"{name}: the same by msprobe {version}", statistics.median(runs[version]))
    print(f"\nmedians of {options.rounds} rounds of {options.steps} steps\n")
    print(table(["recorded step / plain step", "here", *options.versions], rows))


if __name__ == "__main__":
    main()
