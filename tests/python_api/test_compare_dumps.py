"""Comparing two runs from a program: the verdicts of the run, and what is said of wrong arguments."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from msprobe_hooks import DumpError
from pytest_msprobe import compare_dumps
from pytest_msprobe.errors import OptionError
from tests.support.session_results import session_results

RUNS = Path(__file__).parents[2] / "examples" / "compare_runs"
TARGET, GOLDEN = RUNS / "target", RUNS / "golden"


def test_results_are_those_of_the_run(pytester: pytest.Pytester) -> None:
    expected = session_results(
        pytester, f"--msprobe-compare={TARGET}", f"--msprobe-golden={GOLDEN}", "-omsprobe_fuzzy=true"
    )
    found = {each.name: each for each in compare_dumps(TARGET, GOLDEN, fuzzy=True)}
    assert [*found] == [*expected]
    assert {each.outcome for each in found.values()} >= {"pass", "fail"}
    for name, each in found.items():
        assert each.outcome == expected[name].outcome
        assert replace(each.result, seconds=0) == replace(expected[name], seconds=0)


def test_the_first_culprit_is_found_by_its_cause() -> None:
    calls = (each.call for each in compare_dumps(str(TARGET), str(GOLDEN)))
    first = next(call for call in calls if call is not None and call.cause == "culprit")
    assert first.record == "Functional.linear.1.forward"


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"target": "missing.json"}, DumpError, "missing.json: no such file; pass the dump.json"),
        ({"golden": "missing.json"}, OptionError, "golden='.*missing.json': no such file or folder"),
        ({"policy": "strict"}, OptionError, "policy: unknown policy 'strict'; known are default"),
        ({"mapping": "missing.yaml"}, OptionError, "mapping='.*missing.yaml': no such file or folder"),
    ],
)
def test_a_wrong_argument_is_an_error_before_the_first_call(
    arguments: dict[str, Any], error: type[Exception], text: str
) -> None:
    given = {"target": TARGET, "golden": GOLDEN, **arguments}
    with pytest.raises(error, match=text):
        compare_dumps(**given)
