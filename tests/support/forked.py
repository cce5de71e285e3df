"""Programs that run in processes forked from one that has loaded torch, which takes seconds.

Such a process knows nothing of this project before its program imports it. It ends as `leaving` describes.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tests.support.hosts.leaving import LEAVE

# It computes nothing before it forks, so that no thread of a numeric library is missing in the programs' processes.
_TEMPLATE = """
import gc, json, os, sys, traceback
import torch, torch.distributed, torch._dynamo

gc.freeze()

for line in sys.stdin:
    program, processes, folder, variables = json.loads(line)
    pids = []
    for arguments, output, errors in processes:
        pids.append(os.fork())
        if pids[-1] == 0:
            break
    if pids[-1] == 0:
        break
    print(json.dumps([os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]), flush=True)
else:
    sys.exit()
os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
for place, path in ((1, output), (2, errors)):
    os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), place)
os.environ.clear()
os.environ.update(variables)
os.chdir(folder)
sys.argv = ["-c", *arguments]
status = 1
try:
    exec(compile(program, "<string>", "exec"), {"__name__": "__main__"})
    status = 0
except SystemExit as end:
    status = int(end.code or 0)
except BaseException:
    traceback.print_exc()
"""


class Forked:
    """Runs programs in a process each, or in several at once."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def run(
        self, program: str, folder: Path, *arguments: str, variables: Mapping[str, str] = os.environ, timeout: int = 600
    ) -> subprocess.CompletedProcess[str]:
        """Run a program in a folder and return how it ended, whatever that was."""
        with tempfile.TemporaryDirectory() as name:
            output, errors = Path(name, "output"), Path(name, "errors")
            (status,) = self._statuses(program, [(arguments, output, errors)], folder, variables, timeout)
            return subprocess.CompletedProcess(arguments, status, output.read_text(), errors.read_text())

    def run_ranks(self, program: str, arguments: Sequence[Sequence[str]], folder: Path) -> None:
        """Run a program once for each rank's arguments; each must end without an error. Errors go into the folder."""
        errors = [folder / f"errors{rank}" for rank in range(len(arguments))]
        processes = [(words, Path(os.devnull), file) for words, file in zip(arguments, errors, strict=True)]
        statuses = self._statuses(program, processes, Path.cwd(), os.environ, timeout=600)
        assert not any(statuses), (statuses, [file.read_text() for file in errors])

    def _statuses(
        self,
        program: str,
        processes: Sequence[tuple[Sequence[str], Path, Path]],
        folder: Path,
        variables: Mapping[str, str],
        timeout: int,
    ) -> list[int]:
        """Run a program in processes of these arguments and files for output and errors; return how each exited."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        each = [(list(arguments), str(output), str(errors)) for arguments, output, errors in processes]
        self._process.stdin.write(json.dumps([program, each, str(folder), dict(variables)]) + "\n")
        self._process.stdin.flush()
        ended, _, _ = select.select([self._process.stdout], [], [], timeout)
        if not ended:
            os.killpg(self._process.pid, signal.SIGKILL)
        assert ended, f"not ended after {timeout} s: {program}"
        statuses: list[int] = json.loads(self._process.stdout.readline())
        return statuses


@contextlib.contextmanager
def forked_from_torch() -> Iterator[Forked]:
    """Start the process that others are forked from, and end it."""
    command = [sys.executable, "-W", "ignore", "-c", _TEMPLATE + LEAVE]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        yield Forked(process)
        assert process.stdin is not None
        process.stdin.close()
