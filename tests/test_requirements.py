"""A missing part skips tests, unless the machine is said to have every part."""

from __future__ import annotations

import pytest

from tests.support import requirements

MODULE = """
from tests.support.requirements import require

{call}
def test_it():
    require(False, "a browser")
"""


@pytest.mark.parametrize("call", ["", "require(False, 'a browser')"], ids=["of a test", "of a module"])
@pytest.mark.parametrize(("value", "outcome"), [("", "skipped"), ("1", "failed")])
def test_a_missing_part_is_a_failure_where_all_are_required(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, call: str, value: str, outcome: str
) -> None:
    monkeypatch.setenv(requirements.VARIABLE, value)
    pytester.makepyfile(MODULE.format(call=call))
    found = pytester.runpytest_inprocess("-rs").parseoutcomes()
    assert found == {"errors" if outcome == "failed" and call else outcome: 1}
