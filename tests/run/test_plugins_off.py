"""Runs without plugins that pytest itself brings: ``-p no:NAME`` costs what that plugin does, and never the run."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from _pytest.config import default_plugins, essential_plugins

from pytest_msprobe.journal import read_journal
from tests.support.dumps.dump_files import Json
from tests.support.terminals import on_a_terminal

Write = Callable[..., Path]

WRONG = "Functional.softmax.0.forward"
COMPARED = ("--msprobe-compare=dump.json", "--msprobe-golden=dump.json")
#: What pytest can do without, whatever its version.
OPTIONAL = tuple(name for name in default_plugins if name not in essential_plugins)


def without(*plugins: str) -> list[str]:
    return [word for name in plugins for word in ("-p", f"no:{name}")]


def outcomes(journal: Path) -> dict[str, str]:
    """Return the outcome of each item; most other reports are made by plugins that are off here."""
    return {id_.partition("::")[2]: entry.outcome for id_, entry in read_journal(journal).entries.items()}


@pytest.fixture
def run(pytester: pytest.Pytester, write_dump: Write, records: Json) -> Callable[..., dict[str, str]]:
    """Check three calls, of which one is wrong in its forward direction, and return the items' outcomes."""
    write_dump(records)

    def checked(*arguments: str) -> dict[str, str]:
        journal = pytester.path / "run.jsonl"
        ours = ("--msprobe-dump=dump.json", "--msprobe-device=faulty", f"--msprobe-journal={journal}")
        result = pytester.runpytest_inprocess(*ours, *arguments)
        assert result.ret == pytest.ExitCode.TESTS_FAILED, result.stdout.str() + result.stderr.str()
        return outcomes(journal)

    return checked


@pytest.mark.parametrize("plugins", [("terminal",), OPTIONAL], ids=["terminal", "all"])
def test_a_wrong_record_fails_without_plugins_of_pytest(
    run: Callable[..., dict[str, str]], make_device: Callable[[str], None], records: Json, plugins: tuple[str, ...]
) -> None:
    make_device(f"result = result + 1 if record == {WRONG!r} else result")
    assert run(*without(*plugins)) == {name: "fail" if name == WRONG else "pass" for name in records}


def test_a_comparison_ends_without_a_terminal(pytester: pytest.Pytester, write_dump: Write, records: Json) -> None:
    write_dump(records)
    ran = pytester.runpytest_inprocess(*COMPARED, "--msprobe-journal=run.jsonl", *without("terminal"))
    assert ran.ret == pytest.ExitCode.OK
    assert outcomes(pytester.path / "run.jsonl").keys() == records.keys()


@pytest.mark.parametrize(
    "plugin",
    [pytest.param(name, marks=() if name in ("capture", "debugging") else pytest.mark.slow) for name in OPTIONAL],
)
def test_a_failing_item_on_a_terminal_is_one_failure_without_any_one_plugin_of_pytest(
    pytester: pytest.Pytester, write_dump: Write, records: Json, plugin: str
) -> None:
    write_dump(records)
    pytester.makeconftest(f"def pytest_runtest_call(item):\n    assert item.name != {WRONG!r}")
    command = (sys.executable, "-m", "pytest", *COMPARED, "--msprobe-journal=run.jsonl")
    written = on_a_terminal(*command, *without(plugin), folder=pytester.path)
    assert "INTERNALERROR" not in written
    assert ("1 failed" in written) == (plugin != "terminal")
    # What a hook raises is no verdict.
    assert outcomes(pytester.path / "run.jsonl") == {name: "error" if name == WRONG else "pass" for name in records}


ANOTHER_NODE = """
import pytest

@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    report = yield
    report.node = item
    return report
"""


def test_a_report_whose_node_is_no_worker_is_counted(
    pytester: pytest.Pytester, write_dump: Write, records: Json, check: Any
) -> None:
    write_dump(records)
    pytester.makeconftest(ANOTHER_NODE)
    assert check("--msprobe-dump=dump.json", "--msprobe-device=cpu").outcomes == dict.fromkeys(records, "passed")
