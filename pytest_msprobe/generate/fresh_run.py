"""Running a generated module in a process of its own, as its reader will, and hearing what becomes of each record."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from pytest_msprobe.generate.outcomes import FILE_VARIABLE, Outcome, read_outcomes


class FreshRunError(Exception):
    """pytest could not run a module; the text holds its last words."""


def run_module(module: Path, options: Sequence[str], *, patience: float) -> dict[str, Outcome]:
    """Run a module in fresh pytest processes and return what became of its records.

    A process that dies, or gives no sign of life for ``patience`` seconds, costs the record that it was running; the
    next process goes on with the others. Raises FreshRunError where pytest does not get as far as the tests.
    """
    with tempfile.TemporaryDirectory(prefix="msprobe-generate-") as folder:
        outcomes = Path(folder) / "outcomes.jsonl"
        while True:
            known = len(read_outcomes(outcomes))
            status, output = _run(module, options, outcomes, patience)
            found = read_outcomes(outcomes)
            if status in (0, 1, 5):
                return found
            if len(found) == known:
                raise FreshRunError(f"{module}: pytest ended with status {status}:\n{_last_lines(output)}")


def _run(module: Path, options: Sequence[str], outcomes: Path, patience: float) -> tuple[int, str]:
    command = [sys.executable, "-m", "pytest", *_arguments(module), *options]
    log = outcomes.with_name("output")
    with log.open("wb") as file:
        process = subprocess.Popen(
            command, stdout=file, stderr=subprocess.STDOUT, env={**os.environ, FILE_VARIABLE: str(outcomes)}
        )
        try:
            while process.poll() is None:
                silent_since = outcomes.stat().st_mtime if outcomes.exists() else log.stat().st_ctime
                if time.time() - silent_since > patience:
                    process.kill()
                time.sleep(0.05)
        finally:
            process.kill()
            process.wait()
    return process.returncode, log.read_text(errors="replace")


def _arguments(module: Path) -> list[str]:
    arguments = [str(module), "-q", "-p", "pytest_msprobe.generate.outcomes", "-p", "no:cacheprovider"]
    if module.is_relative_to(Path.cwd()):
        # The conftest.py that registers a device may stand above the output folder.
        arguments.append(f"--confcutdir={Path.cwd()}")
    if find_spec("xdist") and not os.environ.get("PYTEST_DISABLE_PLUGIN_AUTOLOAD"):
        # Whatever the project's own settings say: a crash is to hit this one process.
        arguments.append("-n0")
    return arguments


def _last_lines(output: str) -> str:
    return "\n".join(output.strip().splitlines()[-15:])
