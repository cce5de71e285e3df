"""Run the command line of mindstudio-probe 1.2.2 with the CPU as its device.

    python run_ut_on_cpu.py [--sample N] [--no-collection] [--timings FILE] -f pytorch run_ut -api_info dump.json -o out
    python run_ut_on_cpu.py -f pytorch multi_run_ut -api_info dump.json -o out -n 2 -d 0 1

The checker itself is untouched. Rebound before its main() runs are the name of its device, the call that chooses a
CUDA card, autocast's device, and the path of the script that multi_run_ut starts. ``--no-collection`` also leaves out
the full garbage collection after every call.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

STARTED = time.perf_counter()

# Before the peer, which replaces entries of torch.ops that a later lazy import would miss.
import torch  # noqa: E402
from msprobe.msprobe import main  # noqa: E402
from msprobe.pytorch.api_accuracy_checker.run_ut import multi_run_ut, run_ut, run_ut_utils  # noqa: E402

CHILD = "--child"


class _Sample(dict[str, Any]):
    """Every call stays loaded, as in a full run; only an even sample of them is visited."""

    size = 0

    def items(self) -> Any:
        everything = list(super().items())
        return [everything[position * len(everything) // self.size] for position in range(self.size)]


class _Subprocess:
    """What multi_run_ut uses of subprocess, starting this script where it would start its own."""

    PIPE, DEVNULL, TimeoutExpired = subprocess.PIPE, subprocess.DEVNULL, subprocess.TimeoutExpired

    @staticmethod
    def Popen(words: list[str], **options: Any) -> subprocess.Popen[Any]:  # noqa: N802 - the name that is replaced
        return subprocess.Popen([words[0], __file__, CHILD, *words[2:]], **options)


class _NoCollection:
    @staticmethod
    def collect() -> int:
        return 0


def use_cpu() -> None:
    run_ut.current_device = run_ut_utils.current_device = "cpu"
    run_ut_utils.autocast = lambda dtype=None: torch.autocast("cpu", dtype=dtype)
    torch.cuda.set_device = lambda device: None
    multi_run_ut.subprocess = _Subprocess


def time_calls(sample: int, timings: Path | None) -> None:
    """Visit only a sample of the calls, if one is asked for, and write how long start-up and the calls took."""
    visit = run_ut.run_api_offline

    def timed(config: Any, compare: Any, done: Any) -> None:
        calls = len(config.forward_content)
        visited = min(sample or calls, calls)
        if visited < calls:
            chosen = _Sample(config.forward_content)
            chosen.size = visited
            config = config._replace(forward_content=chosen)
        start = time.perf_counter()
        visit(config, compare, done)
        end = time.perf_counter()
        if timings:
            numbers = {"startup": start - STARTED, "calls_took": end - start, "calls": calls, "visited": visited}
            timings.write_text(json.dumps(numbers))

    run_ut.run_api_offline = timed


if __name__ == "__main__":
    use_cpu()
    if sys.argv[1:2] == [CHILD]:
        del sys.argv[1]
        run_ut.seed_all()
        run_ut._run_ut()
    else:
        parser = argparse.ArgumentParser(allow_abbrev=False)
        parser.add_argument("--sample", type=int, default=0)
        parser.add_argument("--no-collection", action="store_true")
        parser.add_argument("--timings", type=Path)
        ours, theirs = parser.parse_known_args()
        time_calls(ours.sample, ours.timings)
        if ours.no_collection:
            run_ut.gc = _NoCollection
        sys.argv[1:] = theirs
        main()
