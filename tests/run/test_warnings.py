from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

NAME = "Functional.softmax.0.forward"


@pytest.fixture
def doubtful(always_warns: list[str], write_dump: Callable[..., Path], records: dict[str, Any]) -> list[str]:
    """Write a dump of one call, and return the options under which its verdict is a warning."""
    write_dump({NAME: records[NAME]})
    return ["--msprobe-dump=dump.json", "--msprobe-device=cpu", "-Wdefault::UserWarning", *always_warns]


@pytest.mark.parametrize("workers", [[], pytest.param(["-n1"], marks=pytest.mark.slow)], ids=["alone", "a worker"])
def test_a_warning_verdict_passes_and_is_a_pytest_warning(check: Any, doubtful: list[str], workers: list[str]) -> None:
    checked = check(*doubtful, *workers, apart=bool(workers))
    checked.result.assert_outcomes(passed=1, warnings=1)
    assert checked.cases[NAME].properties["msprobe.verdict"] == "warn"
    checked.result.stdout.fnmatch_lines(
        ["*warnings summary*", f"*PrecisionWarning: {NAME}: worth a look", "1 API record: 1 warned"]
    )


def test_a_warning_can_be_made_an_error_as_any_pytest_warning(check: Any, doubtful: list[str]) -> None:
    checked = check(*doubtful, "-W", "error::pytest_msprobe.run.item.PrecisionWarning")
    assert checked.wrong == {NAME}
    assert "worth a look" in checked.cases[NAME].text
    assert checked.exit_code == pytest.ExitCode.TESTS_FAILED


def test_a_warning_can_be_ignored_as_any_pytest_warning(check: Any, doubtful: list[str]) -> None:
    checked = check(*doubtful, "-W", "ignore::pytest_msprobe.run.item.PrecisionWarning")
    checked.result.assert_outcomes(passed=1, warnings=0)
    assert checked.cases[NAME].properties["msprobe.verdict"] == "warn"


def test_a_warning_points_at_the_line_of_the_program_that_made_the_call(
    check: Any, doubtful: list[str], pytester: pytest.Pytester
) -> None:
    frames = [
        "File /v/site-packages/torch/nn/functional.py, line 9, in f, g()",
        "File /home/me/net.py, line 7, in f, g()",
    ]
    (pytester.path / "stack.json").write_text(json.dumps({NAME: frames}))
    checked = check(*doubtful)
    checked.result.stdout.fnmatch_lines([f"*/home/me/net.py:7: PrecisionWarning: {NAME}: worth a look"])


def test_a_warning_of_a_call_without_a_stack_names_its_record(check: Any, doubtful: list[str]) -> None:
    checked = check(*doubtful)
    checked.result.stdout.fnmatch_lines([f"*dump.json::{NAME}:0: PrecisionWarning: {NAME}: worth a look"])
