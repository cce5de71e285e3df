"""Calls that agree are spared pytest's hooks, and nobody who counts reports can tell."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from tests.support.compared import Runs
from tests.support.dumps import forward, tensor_around


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
