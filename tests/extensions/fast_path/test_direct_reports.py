"""Calls that agree are spared pytest's hooks, and no one who counts reports can tell."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from pytest_msprobe.modes.compare.items import ComparedItem
from tests.support.conftests import COUNTS_ITEMS
from tests.support.dumps.compared import Runs
from tests.support.dumps.dump_files import forward, tensor_around


@pytest.fixture
def options(pytester: pytest.Pytester) -> list[str]:
    """Return the options that compare five calls of which the second is wrong and the fourth has no partner."""
    names = [f"Torch.relu.{number}.forward" for number in range(5)]
    golden = {name: forward(tensor_around(4, 4)) for name in names}
    target = golden | {names[1]: forward(tensor_around(4, 4), output=[tensor_around(4, 4, at=2.0)])}
    del golden[names[3]]
    ours, theirs = Runs(pytester.path).both(target, golden)
    return [f"--msprobe-compare={ours}", f"--msprobe-golden={theirs}"]


def test_every_call_is_reported_in_every_phase(pytester: pytest.Pytester, options: list[str]) -> None:
    reports = pytester.inline_run(*options).getreports("pytest_runtest_logreport")
    phases = Counter((report.when, report.outcome) for report in reports)
    assert phases["setup", "passed"] == phases["teardown", "passed"] == 5
    assert phases["call", "passed"] == 3
    assert phases["call", "failed"] + phases["call", "skipped"] == 2


def test_a_page_of_pytest_html_has_every_call(pytester: pytest.Pytester, options: list[str]) -> None:
    result = pytester.runpytest_inprocess(*options, "-p", "metadata", "-p", "html", "--html=page.html", "-W", "default")
    outcomes = result.parseoutcomes()
    counted = re.findall(r"(\d+) (Failed|Passed|Skipped),", (pytester.path / "page.html").read_text())
    assert {word.lower(): int(count) for count, word in counted if count != "0"} == {
        word: outcomes[word] for word in ("failed", "passed", "skipped") if word in outcomes
    }


@pytest.mark.parametrize("option", ["--setup-only", "--setup-plan"])
def test_a_plan_runs_nothing(pytester: pytest.Pytester, options: list[str], option: str) -> None:
    result = pytester.runpytest_inprocess(*options, option)
    assert result.ret == 0
    assert "passed" not in result.parseoutcomes()


def test_setup_show_shows_every_call(pytester: pytest.Pytester, options: list[str]) -> None:
    result = pytester.runpytest_inprocess(*options, "--setup-show")
    assert len(re.findall(r"^ +target/dump.json::Torch.relu", result.stdout.str(), re.MULTILINE)) == 5


def test_hooks_of_a_conftest_see_every_call(pytester: pytest.Pytester, options: list[str]) -> None:
    pytester.makeconftest("def pytest_runtest_setup(item): print(f'about to run {item.name}')")
    result = pytester.runpytest_inprocess(*options, "-s")
    assert result.stdout.str().count("about to run") == 5


def test_a_comparison_does_not_depend_on_the_plugin_for_junit(pytester: pytest.Pytester, options: list[str]) -> None:
    result = pytester.runpytest_inprocess(*options, "-p", "no:junitxml")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert result.parseoutcomes()["passed"] == 3


@pytest.mark.parametrize(
    ("hook", "calls"),
    [
        ("pytest_runtest_protocol", 5),
        ("pytest_runtest_setup", 5),
        ("pytest_runtest_call", 5),
        ("pytest_runtest_teardown", 5),
        ("pytest_runtest_makereport", 15),
    ],
)
def test_a_plugin_that_listens_to_a_phase_hears_of_every_call(
    pytester: pytest.Pytester, options: list[str], hook: str, calls: int
) -> None:
    pytester.makepyfile(counting=COUNTS_ITEMS.format(hook=hook))
    pytester.syspathinsert()
    result = pytester.runpytest_inprocess(*options, "-p", "counting", "-s")
    assert f"seen {calls} 5" in result.stdout.str()


def test_a_plugin_that_runs_items_itself_runs_every_call(pytester: pytest.Pytester, options: list[str]) -> None:
    result = pytester.runpytest_inprocess(*options, "-p", "rerunfailures", "--reruns=1")
    # The wrong call runs twice, and is reported twice.
    assert result.parseoutcomes() == {"failed": 1, "passed": 3, "skipped": 1, "rerun": 1}


def test_marks_that_a_conftest_gives_have_their_meaning(pytester: pytest.Pytester, options: list[str]) -> None:
    pytester.makeconftest(
        """
        import pytest
        def pytest_collection_modifyitems(items):
            items[0].add_marker(pytest.mark.skip(reason="not today"))
            items[1].add_marker(pytest.mark.xfail)
            items[2].add_marker(pytest.mark.xfail)
        """
    )
    outcomes = pytester.runpytest_inprocess(*options, "-p", "no:randomly").parseoutcomes()
    assert outcomes == {"skipped": 2, "xfailed": 1, "xpassed": 1, "passed": 1}


def test_a_call_is_announced_before_it_is_compared(
    pytester: pytest.Pytester, options: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # What the conftest.py sets is this test's alone.
    monkeypatch.setattr(ComparedItem, "judge", ComparedItem.judge)
    pytester.makeconftest(
        """
        from pytest_msprobe.modes.compare.items import ComparedItem
        judge = ComparedItem.judge
        def judge_loudly(item):
            print("judged", item.name)
            return judge(item)
        ComparedItem.judge = judge_loudly
        def pytest_runtest_logstart(nodeid):
            print("started", nodeid)
        """
    )
    output = pytester.runpytest_inprocess(*options, "-s").stdout.str()
    for number in range(5):
        assert output.index(f"::Torch.relu.{number}.forward\n") < output.index(f"judged Torch.relu.{number}.forward")
