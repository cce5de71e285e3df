"""Run of a generated module in a process of its own, as its reader will, with the outcome of each record."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from pytest_msprobe.errors import FreshRunError
from pytest_msprobe.extensions.generate.outcome_plugin import FILE_VARIABLE, STARTED, Outcome, read_outcomes

# A choice: importing torch from a slow network disk may take minutes.
_STARTUP_SECONDS = 300.0

# Passed, failed, nothing left to run.
_NORMAL = (0, 1, 5)


def run_module(module: Path, options: Sequence[str], *, patience: float) -> dict[str, Outcome]:
    """Run a module in fresh pytest processes and return what became of its records.

    A process that dies, or whose test takes longer than ``patience`` seconds, costs the record that it was running;
    the next process goes on with the others. Raises FreshRunError where pytest does not get as far as the tests.
    """
    with tempfile.TemporaryDirectory(prefix="msprobe-generate-") as folder:
        outcomes, log = Path(folder) / "outcomes.jsonl", Path(folder) / "output"
        ends: dict[str, Outcome] = {}
        while True:
            count_before = len(read_outcomes(outcomes))
            status, is_late = _run(_command(module, options), outcomes, log, patience)
            by_label = read_outcomes(outcomes) | ends
            if status in _NORMAL:
                return by_label
            if len(by_label) == count_before:
                raise FreshRunError(f"pytest ended with status {status}:\n{_last_lines(log)}", file=module)
            reason = f"did not end within {patience:g} s" if is_late else f"its process died{_signal(status)}"
            ends |= {label: Outcome("failed", reason) for label, last in by_label.items() if last.outcome == STARTED}


def _run(command: Sequence[str], outcomes: Path, log: Path, patience: float) -> tuple[int, bool]:
    """Run pytest, and return its status and whether it had to be ended."""
    environment = {**os.environ, FILE_VARIABLE: str(outcomes), "PYTHONDONTWRITEBYTECODE": "1"}
    started, is_late = time.time(), False
    with log.open("wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, env=environment)
        try:
            while process.poll() is None and not is_late:
                time.sleep(0.05)
                heard = outcomes.stat().st_mtime if outcomes.exists() else 0.0
                # Until the first test starts, it is pytest and torch that take their time.
                limit = patience if heard > started else max(patience, _STARTUP_SECONDS)
                is_late = time.time() - max(heard, started) > limit
        finally:
            process.kill()
            process.wait()
    return process.returncode, is_late


def _signal(status: int) -> str:
    return f" of {signal.Signals(-status).name}" if status < 0 else f" with status {status}"


def _command(module: Path, options: Sequence[str]) -> list[str]:
    arguments = [str(module), "-q", "-p", "pytest_msprobe.extensions.generate.outcome_plugin", "-p", "no:cacheprovider"]
    if module.is_relative_to(Path.cwd()):
        # The conftest.py that registers a device may stand above the output folder.
        arguments.append(f"--confcutdir={Path.cwd()}")
    if find_spec("xdist") and not os.environ.get("PYTEST_DISABLE_PLUGIN_AUTOLOAD"):
        # Whatever the project's own settings say: a crash is to hit this one process.
        arguments.append("-n0")
    return [sys.executable, "-m", "pytest", *arguments, *options]


def _last_lines(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").strip().splitlines()[-15:])
