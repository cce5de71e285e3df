"""Run of a generated module in a process of its own, and the pytest plugin that says what becomes of each test.

The file is read again when pytest starts, and what it holds is not run again: after a crash the next process goes on.
"""

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
from typing import Any

import msgspec
import pytest

from msprobe_hooks.json_decoding import decode_json
from pytest_msprobe.errors import FreshRunError
from pytest_msprobe.run.item import PrecisionError

# A choice: importing torch from a slow network disk may take minutes.
_STARTUP_SECONDS = 300.0

# Passed, failed, nothing left to run.
_NORMAL = (0, 1, 5)

_FILE_VARIABLE = "MSPROBE_GENERATE_OUTCOMES"

#: The outcome of a test that has not ended.
_STARTED = "started"


def run_module(module: Path, options: Sequence[str], *, patience: float) -> dict[str, Outcome]:
    """Run a module in fresh pytest processes and return what became of its records.

    A process that dies, or whose test takes longer than ``patience`` seconds, costs the record that it was running;
    the next process goes on with the others. Raises FreshRunError where pytest does not get as far as the tests.
    """
    with tempfile.TemporaryDirectory(prefix="msprobe-generate-") as folder:
        outcomes, log = Path(folder) / "outcomes.jsonl", Path(folder) / "output"
        ends: dict[str, Outcome] = {}
        while True:
            known = len(_read_outcomes(outcomes))
            status, is_late = _run(_command(module, options), outcomes, log, patience)
            found = _read_outcomes(outcomes) | ends
            if status in _NORMAL:
                return found
            if len(found) == known:
                raise FreshRunError(f"pytest ended with status {status}:\n{_last_lines(log)}", file=module)
            reason = f"did not end within {patience:g} s" if is_late else f"its process died{_signal(status)}"
            ends |= {label: Outcome("failed", reason) for label, last in found.items() if last.outcome == _STARTED}


def _run(command: Sequence[str], outcomes: Path, log: Path, patience: float) -> tuple[int, bool]:
    """Run pytest, and return its status and whether it had to be ended."""
    environment = {**os.environ, _FILE_VARIABLE: str(outcomes), "PYTHONDONTWRITEBYTECODE": "1"}
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
    arguments = [str(module), "-q", "-p", "pytest_msprobe.extensions.generate.subprocess_run", "-p", "no:cacheprovider"]
    if module.is_relative_to(Path.cwd()):
        # The conftest.py that registers a device may stand above the output folder.
        arguments.append(f"--confcutdir={Path.cwd()}")
    if find_spec("xdist") and not os.environ.get("PYTEST_DISABLE_PLUGIN_AUTOLOAD"):
        # Whatever the project's own settings say: a crash is to hit this one process.
        arguments.append("-n0")
    return [sys.executable, "-m", "pytest", *arguments, *options]


def _last_lines(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").strip().splitlines()[-15:])


class Outcome(msgspec.Struct, frozen=True):
    """Outcome of one record: ``passed``, ``failed``, ``skipped`` or ``started``, and the reason."""

    outcome: str
    reason: str = ""


class _Line(msgspec.Struct):
    test: str
    label: str
    outcome: str = _STARTED
    reason: str = ""


def _read_outcomes(path: Path) -> dict[str, Outcome]:
    """Return the outcome of each test that was started, by record (and seed), in order."""
    return {line.label: Outcome(line.outcome, line.reason) for line in _lines(path)}


def _lines(path: Path) -> list[_Line]:
    if not path.exists():
        return []
    whole = path.read_bytes().split(b"\n")[:-1]
    return [decode_json(line, _Line) for line in whole]


def _append(line: _Line) -> None:
    with _path().open("ab") as file:
        file.write(msgspec.json.encode(line) + b"\n")


def _path() -> Path:
    return Path(os.environ[_FILE_VARIABLE])


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what an earlier process ran or died of."""
    known = {line.test for line in _lines(_path())}
    done = [item for item in items if item.nodeid in known]
    if done:
        config.hook.pytest_deselected(items=done)
        items[:] = [item for item in items if item.nodeid not in known]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Any:
    """Write that a test starts: what is never heard of again has killed its process."""
    _append(_Line(item.nodeid, _label(item)))
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    """Write how a test ended."""
    report = yield
    if report.when == "call" or not report.passed:
        _append(_Line(item.nodeid, _label(item), report.outcome, _reason(call.excinfo)))
    return report


def _label(item: pytest.Item) -> str:
    parameters = getattr(item, "callspec").params  # noqa: B009 - functions that are parametrized have it
    seed = f" with seed {parameters['seed']}" if "seed" in parameters else ""
    return f"{parameters['record']}{seed}"


def _reason(excinfo: pytest.ExceptionInfo[BaseException] | None) -> str:
    if excinfo is None:
        return ""
    if isinstance(excinfo.value, PrecisionError):
        return excinfo.value.result.reason
    if isinstance(excinfo.value, pytest.skip.Exception):
        return str(excinfo.value)
    return excinfo.exconly(tryshort=True)
