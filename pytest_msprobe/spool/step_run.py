"""One run of pytest, on one step."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from msprobe_hooks.dump.paths.recording import DUMP_FILE
from pytest_msprobe.containment.process import end_session
from pytest_msprobe.errors import OptionError, ProgramError

#: pytest's status where its options choose nothing of a step.
NOTHING_CHOSEN = 5

_POLL_SECONDS = 0.2
_SHOWN_LINES = 15
# Options that a watch gives itself, or that would make a journal of a part of a step.
_OWN_OPTIONS = ("--msprobe-dump", "--msprobe-journal", "--msprobe-resume", "--msprobe-shard")


def require_free(options: Sequence[str]) -> None:
    """Raise OptionError where options of pytest are those that the watch gives."""
    for word in options:
        if word.partition("=")[0] in _OWN_OPTIONS:
            raise OptionError(
                f"{word}: the watch names each step and writes one journal of all",
                remedy="leave it away; --journal FILE, before --, names the journal",
            )


def run_step(
    step: Path, options: Sequence[str], journal: Path, output: Path, is_ended: Callable[[], bool]
) -> int | None:
    """Check a step in a fresh process; return pytest's status, or None where the watch ended first.

    What it prints goes to ``output``, its journal to ``journal``; what was in these before is gone. Raises ProgramError
    where pytest does not get as far as a verdict.
    """
    journal.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options]
    command += [f"--msprobe-dump={step / DUMP_FILE}", f"--msprobe-journal={journal}"]
    with output.open("wb") as file:
        # A session of its own, so that Ctrl-C reaches the watch alone, which then ends all of it.
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            status = _wait(process, is_ended)
        finally:
            end_session(process)
    if status not in (None, 0, 1, NOTHING_CHOSEN):
        lines = output.read_text(errors="replace").strip().splitlines()[-_SHOWN_LINES:]
        raise ProgramError(
            f"pytest ended with status {status}, and the watch with it; the step stays where it is. It wrote last:\n"
            + "\n".join(lines),
            file=step,
        )
    return status


def _wait(process: subprocess.Popen[bytes], is_ended: Callable[[], bool]) -> int | None:
    while not is_ended():
        with suppress(subprocess.TimeoutExpired):
            return process.wait(_POLL_SECONDS)
    return None
