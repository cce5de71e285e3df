"""Programs of several ranks, each in a process forked from one that has loaded torch, which takes seconds."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

# It computes nothing before it forks, so that no thread of a numeric library is missing in the ranks.
_TEMPLATE = """
import json, os, sys, traceback
import torch, torch.distributed
import msprobe_hooks.torch.session

def be_rank(program, arguments, errors):
    os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), 2)
    sys.argv = ["-c", *arguments]
    status = 1
    try:
        exec(compile(program, "<string>", "exec"), {"__name__": "__main__"})
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)

for line in sys.stdin:
    program, ranks = json.loads(line)
    pids = []
    for arguments, errors in ranks:
        pids.append(os.fork())
        if pids[-1] == 0:
            be_rank(program, arguments, errors)
    print(json.dumps([os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]), flush=True)
"""


class ForkedRanks:
    """Runs programs in several processes at once."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def run(self, program: str, arguments: Sequence[Sequence[str]], folder: Path) -> None:
        """Run a program once for each rank's arguments; each must end without an error. Errors go into the folder."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        files = [folder / f"errors{rank}" for rank in range(len(arguments))]
        ranks = [[list(words), str(file)] for words, file in zip(arguments, files, strict=True)]
        self._process.stdin.write(json.dumps([program, ranks]) + "\n")
        self._process.stdin.flush()
        statuses = json.loads(self._process.stdout.readline())
        assert not any(statuses), (statuses, [file.read_text() for file in files])


@contextlib.contextmanager
def forked_ranks() -> Iterator[ForkedRanks]:
    """Start the process that ranks are forked from, and end it."""
    command = [sys.executable, "-W", "ignore", "-c", _TEMPLATE]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield ForkedRanks(process)
        assert process.stdin is not None
        process.stdin.close()
