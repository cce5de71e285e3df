"""Programs of several processes that communicate by gloo."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

LEAVE = """
import atexit, os, sys
atexit._run_exitfuncs()
sys.stdout.flush()
os._exit(0)
"""
"""The end of such a program: what is registered for it is done, and the interpreter is not taken down.

A group that something still refers to after ``destroy_process_group`` (meshes of FSDP, default arguments of modules
that torch imports late) keeps its threads. One of them that lets go of a tensor while the interpreter ends aborts the
process: "terminate called without an active exception" (pytorch/pytorch#190489).
"""
_SECONDS = 300


def run_ranks(program: str, count: int, folder: Path) -> list[tuple[int, str]]:
    """Run a program in processes of one group and return how each ended, with what it wrote to stderr.

    Its arguments are the rank and the folder; it ends as `LEAVE` does.
    """
    command = [sys.executable, "-W", "ignore", "-c", program + LEAVE]
    processes = [
        subprocess.Popen([*command, str(rank), str(folder)], stderr=subprocess.PIPE, text=True) for rank in range(count)
    ]
    try:
        told = [process.communicate(timeout=_SECONDS)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()
    return [(process.returncode, text) for process, text in zip(processes, told, strict=True)]
