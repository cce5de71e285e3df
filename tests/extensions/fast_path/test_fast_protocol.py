"""Records are spared pytest's hooks for phases in which nothing happens, and no one who counts reports can tell."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.support.conftests import COUNTS_ITEMS

Write = Callable[..., Path]
Json = dict[str, Any]

CHECK = ("--msprobe-dump=dump.json", "--msprobe-device=cpu")
FAULTY = ("--msprobe-dump=dump.json", "--msprobe-device=faulty")


def test_every_record_is_reported_in_every_phase(pytester: pytest.Pytester, write_dump: Write, records: Json) -> None:
    write_dump(records)
    reports = pytester.inline_run(*CHECK).getreports("pytest_runtest_logreport")
    phases = [(report.nodeid.rpartition("::")[2], report.when, report.outcome) for report in reports]
    assert sorted(name for name, *_ in phases[::3]) == sorted(records)
    assert phases == [(name, when, "passed") for name, *_ in phases[::3] for when in ("setup", "call", "teardown")]
    assert all(report.user_properties for report in reports if report.when == "teardown")


def test_junit_has_what_a_record_prints(
    pytester: pytest.Pytester, write_dump: Write, records: Json, make_device: Callable[[str], None]
) -> None:
    write_dump(records)
    make_device("print('run for', record)")
    pytester.runpytest_inprocess(*FAULTY, "--junitxml=junit.xml", "-o", "junit_logging=all")
    for case in ElementTree.parse(pytester.path / "junit.xml").iter("testcase"):
        assert (case.findtext("system-out") or "").count(f"run for {case.attrib['name']}\n") == 1


def test_what_runs_on_is_reported_before_the_first_record_is_judged(
    pytester: pytest.Pytester, write_dump: Write, records: Json
) -> None:
    write_dump(records)
    first = pytester.inline_run(*CHECK).getreports("pytest_runtest_logreport")[0]
    assert first.when == "setup"
    assert first.msprobe_start["device"] == "cpu:0"


@pytest.mark.parametrize(
    ("hook", "times"),
    [
        ("pytest_runtest_protocol", 1),
        ("pytest_runtest_setup", 1),
        ("pytest_runtest_call", 1),
        ("pytest_runtest_teardown", 1),
        ("pytest_runtest_makereport", 3),
    ],
)
def test_a_plugin_that_listens_to_a_phase_hears_of_every_record(
    pytester: pytest.Pytester, write_dump: Write, records: Json, hook: str, times: int
) -> None:
    write_dump(records)
    pytester.makepyfile(counting=COUNTS_ITEMS.format(hook=hook))
    pytester.syspathinsert()
    result = pytester.runpytest_inprocess(*CHECK, "-p", "counting", "-s")
    assert f"seen {times * len(records)} {len(records)}" in result.stdout.str()


@pytest.mark.parametrize("option", ["--setup-only", "--setup-plan"])
def test_a_plan_runs_no_record(pytester: pytest.Pytester, write_dump: Write, records: Json, option: str) -> None:
    write_dump(records)
    assert "passed" not in pytester.runpytest_inprocess(*CHECK, option).parseoutcomes()


def test_setup_show_shows_every_record(pytester: pytest.Pytester, write_dump: Write, records: Json) -> None:
    write_dump(records)
    shown = pytester.runpytest_inprocess(*CHECK, "--setup-show").stdout.str()
    assert len(re.findall(r"^ +dump.json::", shown, re.MULTILINE)) == len(records)


def test_marks_that_a_conftest_gives_records_have_their_meaning(
    pytester: pytest.Pytester, write_dump: Write, records: Json
) -> None:
    write_dump(records)
    pytester.makeconftest(
        """
        import pytest
        def pytest_collection_modifyitems(items):
            items[0].add_marker(pytest.mark.skip(reason="not today"))
            items[2].add_marker(pytest.mark.xfail)
        """
    )
    outcomes = pytester.runpytest_inprocess(*CHECK).parseoutcomes()
    assert outcomes == {"skipped": 1, "xpassed": 1, "passed": len(records) - 2}


_TESTS = """
import pytest
@pytest.fixture(scope="module", autouse=True)
def module():
    yield
    print("module torn down")
def test_it():
    pass
"""


def test_what_tests_before_them_set_up_is_torn_down_where_pytest_does_it(
    pytester: pytest.Pytester, write_dump: Write, records: Json
) -> None:
    for folder in ("a", "b"):
        write_dump(records, folder)
        (pytester.path / folder / f"test_{folder}.py").write_text(_TESTS)
    result = pytester.runpytest_inprocess(
        *("a/test_a.py", "a/dump.json", "b/dump.json", "b/test_b.py", "-s", "-v"),
        *("--msprobe-dump=a/dump.json", "--msprobe-dump=b/dump.json", "--msprobe-device=cpu"),
    )
    result.assert_outcomes(passed=2 * len(records) + 2)
    text = result.stdout.str()
    assert text.index("module torn down") < text.index("a/dump.json::" + next(iter(records)) + " ")


_FAILS_AT_ITS_END = """
import pytest
@pytest.fixture(scope="session", autouse=True)
def session():
    yield
    raise ValueError("at the end of the session")
"""


def test_what_the_session_set_up_is_torn_down_with_the_record_that_ends_it(
    pytester: pytest.Pytester, write_dump: Write, records: Json, make_device: Callable[[str], None]
) -> None:
    write_dump(records)
    make_device("result = result + 1")
    conftest = pytester.path / "conftest.py"
    conftest.write_text(conftest.read_text() + _FAILS_AT_ITS_END)
    pytester.makepyfile(test_before="def test_it(): pass")
    result = pytester.runpytest_inprocess("test_before.py", "dump.json", *FAULTY, "-x")
    result.assert_outcomes(passed=1, failed=1, errors=1)
    result.stdout.fnmatch_lines(["*ERROR at teardown of*", "*ValueError: at the end of the session*"])
