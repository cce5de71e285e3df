"""A step inside of ``PtdbgDispatch``, every operator compared with the CPU: this project and mindstudio-probe 1.2.2.

Each runs in a process of its own, by turns. The numbers are CPU seconds of a step over those of a plain step in the
same environment; medians.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path

from measure import PEER_PYTHON, ROOT, quote, step_seconds, table

SCRIPT = ROOT / "benchmarks" / "peer" / "dispatched_steps.py"


def seconds(python: Path, tool: str, steps: int) -> float:
    """Return the median CPU seconds of a step."""
    folders = [ROOT / name for name in ("standards", "hook_lib", ".")] if tool == "ours" else []
    return step_seconds(python, SCRIPT, ["--tool", tool, "--steps", str(steps)], folders)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=3)
    options = parser.parse_args()
    ratios: dict[str, list[float]] = {"ours": [], "peer": []}
    for _ in range(options.rounds):
        for tool, python in (("ours", Path(sys.executable)), ("peer", PEER_PYTHON)):
            plain = seconds(python, "none", options.steps)
            ratios[tool].append(seconds(python, tool, options.steps) / plain)
        print({tool: round(found[-1], 1) for tool, found in ratios.items()}, flush=True)
    ours, peer = (statistics.median(ratios[tool]) for tool in ("ours", "peer"))
    quote("a dispatched step / a plain step", ours)
    quote("the same by msprobe 1.2.2", peer)
    print(f"\nmedians of {options.rounds} rounds of {options.steps} steps\n")
    print(
        table(
            ["dispatched step / plain step", "here", "1.2.2", "1.2.2 / here"],
            [["OFF", f"{ours:.1f}", f"{peer:.1f}", f"{peer / ours:.2f}"]],
        )
    )


if __name__ == "__main__":
    main()
