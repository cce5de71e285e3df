"""Programs of several processes that communicate, by gloo or by HCCL on simulated cards."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.support.hosts.leaving import LEAVE

_SECONDS = 300


def run_ranks(program: str, count: int, folder: Path, **variables: str) -> list[tuple[int, str]]:
    """Run a program in processes of one group and return how each ended, with what it wrote to stderr.

    Its arguments are the rank, the folder and how many ranks there are; it leaves as `leaving` describes. The variables
    are added to its environment.
    """
    command = [sys.executable, "-W", "ignore", "-c", program + "\nstatus = 0" + LEAVE]
    processes = [
        subprocess.Popen(
            [*command, str(rank), str(folder), str(count)],
            env=os.environ | variables,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(count)
    ]
    try:
        reported = [process.communicate(timeout=_SECONDS)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()
    return [(process.returncode, text) for process, text in zip(processes, reported, strict=True)]
