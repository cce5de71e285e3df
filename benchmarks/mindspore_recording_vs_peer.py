"""What recording a GPT-like network of MindSpore costs: this project next to mindstudio-probe 26.2.0.

The peer's environment is that of mindspore_vs_peer.py, ``.peer26-mindspore``, with ``msgspec`` in it for this project's
recorder. Each tool records in a process of its own, by turns, and in each process recorded steps alternate with others.
What is compared is the CPU time that a recorded step takes more than the one before it, in the median of these pairs;
the ratio is the median over the rounds. At L0 both tools add less than a step of a busy machine varies by.

python benchmarks/mindspore_recording_vs_peer.py [--rounds N] [--steps N] [--levels L1 L0]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess

from measure import ROOT, quote, scratch, table

PYTHON = ROOT / ".peer26-mindspore" / "bin" / "python"
SCRIPT = ROOT / "benchmarks" / "peer" / "mindspore_steps.py"
TOOLS = {"ours": "msprobe_hooks.extensions.mindspore", "msprobe": "msprobe.mindspore"}


def seconds(tool: str, level: str, steps: int) -> tuple[float, float]:
    """Return the median CPU seconds of a step without recording, and those that a recorded one takes more."""
    words = [PYTHON, SCRIPT, "--tool", TOOLS[tool], "--level", level, "--steps", str(steps)]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "hook_lib"), "OMP_NUM_THREADS": "1"}
    ran = subprocess.run([*map(str, words)], cwd=scratch(), env=env, capture_output=True, text=True)
    reported = [line for line in ran.stdout.splitlines() if line.startswith("seconds ")]
    if not reported:
        raise SystemExit(f"{' '.join(map(str, words))}\n{ran.stdout[-2000:]}{ran.stderr[-2000:]}")
    found = json.loads(reported[-1].removeprefix("seconds "))
    pairs = zip(found["recorded"], found["stopped"], strict=True)
    return statistics.median(found["plain"]), statistics.median(recorded - stopped for recorded, stopped in pairs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--levels", nargs="+", default=["L1", "L0"])
    options = parser.parse_args()
    if not PYTHON.exists():
        raise SystemExit(f"{PYTHON}: not there; {__doc__}")
    rows = []
    for level in options.levels:
        runs: dict[str, list[tuple[float, float]]] = {tool: [] for tool in TOOLS}
        for number in range(options.rounds):
            for tool in list(TOOLS)[:: -1 if number % 2 else 1]:
                runs[tool].append(seconds(tool, level, options.steps))
                print(f"  {level} {tool}: plain {runs[tool][-1][0]:.3f} s, added {runs[tool][-1][1]:.3f} s", flush=True)
        ratios = [peer[1] / ours[1] for ours, peer in zip(runs["ours"], runs["msprobe"], strict=True)]
        plain = statistics.median(each[0] for own in runs.values() for each in own)
        added = [statistics.median(each[1] for each in runs[tool]) for tool in TOOLS]
        wanted = {"L1": "at least 6", "L0": "at least 8"}.get(level, "")
        quote(f"MindSpore, {level}: added by msprobe 26.2.0 / here", statistics.median(ratios), wanted=wanted)
        rows.append([level, f"{plain:.3f}", *(f"{each:.3f}" for each in added), f"{statistics.median(ratios):.1f}"])
    print(f"\nmedians of {options.rounds} rounds of {options.steps} steps, load {os.getloadavg()[0]:.1f}\n")
    print(table(["level", "plain step, CPU s", "added here", "added by msprobe", "msprobe / here"], rows))


if __name__ == "__main__":
    main()
