"""A pytest plugin for fresh runs of generated modules: what becomes of each test, one line each, as it happens.

The file is read again when pytest starts, and what it holds is not run again: after a crash the next process goes on.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from msprobe_hooks.json_decoding import decode_json
from pytest_msprobe.run.item import PrecisionError

FILE_VARIABLE = "MSPROBE_GENERATE_OUTCOMES"

#: The outcome of a test that has not ended.
STARTED = "started"


class Outcome(msgspec.Struct, frozen=True):
    """Outcome of one record: ``passed``, ``failed``, ``skipped`` or ``started``, and the reason."""

    outcome: str
    reason: str = ""


class _Line(msgspec.Struct):
    test: str
    label: str
    outcome: str = STARTED
    reason: str = ""


def read_outcomes(path: Path) -> dict[str, Outcome]:
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
    return Path(os.environ[FILE_VARIABLE])


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what an earlier process ran or died of."""
    finished = {line.test for line in _lines(_path())}
    done = [item for item in items if item.nodeid in finished]
    if done:
        config.hook.pytest_deselected(items=done)
        items[:] = [item for item in items if item.nodeid not in finished]


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
