"""What a judged item logs is reported as pytest reports it of any test, and loggers are left as they were."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_msprobe.extensions.fast_path.left_out_hooks import CapturedLogs

Write = Callable[..., Path]
Json = dict[str, Any]

LOGGED = """
import logging
own = logging.getLogger("own")
own.warning("%s of mine", record)
logging.getLogger("another").error("of another\\nin two lines")
result = result + 1
"""

MADE = """
import logging
logging.getLogger("own").propagate = False
"""

IN_PHASES = """
import logging, pytest

@pytest.hookimpl(trylast=True)
def pytest_runtest_setup(item):
    logging.warning("set up")

@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item):
    logging.warning("torn down")
"""

AFTERWARDS = """
def test_of_a_user():
    import torch
    from tests.extensions.fast_path.test_log_capture import handlers_of_ours
    assert handlers_of_ours() == 0
"""


def handlers_of_ours() -> int:
    """Return at how many loggers a handler for what items log is."""
    root = logging.getLogger()
    loggers = [root, *(one for one in root.manager.loggerDict.values() if isinstance(one, logging.Logger))]
    return sum(isinstance(handler, CapturedLogs) for one in loggers for handler in one.handlers)


@pytest.fixture
def loud(pytester: pytest.Pytester, write_dump: Write, records: Json, make_device: Callable[[str], None]) -> None:
    name = next(iter(records))
    write_dump({name: records[name]})
    make_device(LOGGED)
    add(pytester, MADE)


def add(pytester: pytest.Pytester, lines: str) -> None:
    conftest = pytester.path / "conftest.py"
    conftest.write_text(conftest.read_text() + lines)


def _section(result: pytest.RunResult, title: str) -> list[str]:
    lines = result.outlines
    (start,) = [index for index, line in enumerate(lines) if f" {title} " in line]
    ends = (index for index, line in enumerate(lines) if index > start and line.startswith(("---", "===", "___")))
    return lines[start + 1 : next(ends)]


@pytest.mark.usefixtures("loud")
class TestLogsOfItems:
    def run(self, pytester: pytest.Pytester, *options: str) -> pytest.RunResult:
        return pytester.runpytest_inprocess("--msprobe-dump=dump.json", "--msprobe-device=faulty", *options)

    def test_a_failure_has_the_section_that_pytests_own_capture_makes(self, pytester):
        ours = _section(self.run(pytester), "Captured log call")
        pytests = _section(self.run(pytester, "--log-level=NOTSET"), "Captured log call")
        assert [line.split()[:2] for line in ours] == [line.split()[:2] for line in pytests]
        assert any("own" in line and "of mine" in line for line in ours)
        assert any("in two lines" in line for line in ours)

    def test_each_phase_has_its_own_section(self, pytester):
        add(pytester, IN_PHASES)
        result = self.run(pytester)
        assert "set up" in _section(result, "Captured log setup")[0]
        assert "torn down" in _section(result, "Captured log teardown")[0]
        assert not any("set up" in line for line in _section(result, "Captured log call"))

    def test_it_has_one_section_next_to_a_conftest_that_is_not_its_own(self, pytester):
        pytester.mkdir("elsewhere").joinpath("conftest.py").write_text(IN_PHASES)
        pytester.path.joinpath("elsewhere", "test_it.py").write_text("def test_it(): pass")
        result = self.run(pytester, "dump.json", "elsewhere")
        assert any("of mine" in line for line in _section(result, "Captured log call"))
        assert "set up" not in result.stdout.str()

    def test_a_message_that_cannot_be_formatted_fails_its_item(self, pytester):
        conftest = pytester.path / "conftest.py"
        conftest.write_text(conftest.read_text().replace("result = result + 1", 'own.warning("%d", "no number")'))
        self.run(pytester).stdout.fnmatch_lines(["*TypeError: %d format: a real number is required, not str*"])

    def test_log_cli_shows_live(self, pytester):
        result = self.run(pytester, "--log-cli-level=WARNING")
        result.stdout.fnmatch_lines(["*live log call*", "*of mine*"])

    def test_no_logger_has_the_handler_while_a_test_of_another_kind_runs(self, pytester):
        pytester.path.joinpath("test_after.py").write_text(AFTERWARDS)
        self.run(pytester, "dump.json", "test_after.py").assert_outcomes(passed=1, failed=1)


def test_no_logger_keeps_the_handler_where_a_run_ends_before_its_last_item(
    pytester: pytest.Pytester, write_dump: Write, records: Json, make_device: Callable[[str], None]
) -> None:
    write_dump(records)
    make_device("result = result + 1")
    pytester.runpytest_inprocess("--msprobe-dump=dump.json", "--msprobe-device=faulty", "-x").assert_outcomes(failed=1)
    assert handlers_of_ours() == 0
