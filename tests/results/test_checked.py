"""The exception of a check on its way from a forked process."""

from __future__ import annotations

import pytest

from pytest_msprobe.results.checked import Checked, from_message, to_message, with_causes
from pytest_msprobe.results.outcomes import Breakdown
from pytest_msprobe.results.result import failed_without_result

FAILED = failed_without_result("test_it.forward", Breakdown.TEST, "golden raised on the CPU: ValueError: mine")


class TwoArgumentsError(Exception):
    def __init__(self, first: str, second: str) -> None:
        super().__init__(first + second)


def caught(error: Exception) -> Exception:
    try:
        raise error
    except Exception as found:
        return found


def crossed(error: Exception) -> Checked:
    (checked,) = with_causes([FAILED], [caught(error)])
    return from_message(to_message(checked))


def test_an_exception_crosses_with_the_text_of_its_traceback() -> None:
    checked = crossed(ValueError("mine"))
    assert isinstance(checked.cause, ValueError)
    assert str(checked.cause) == "mine"
    assert "in caught" in checked.below_cause.notes[0]


class OnlyHereError(Exception):
    def __reduce__(self) -> str:
        raise TypeError("not to be copied")


@pytest.mark.parametrize("error", [OnlyHereError(), TwoArgumentsError("a", "b")])
def test_of_an_exception_that_cannot_be_copied_the_text_is_kept(error: Exception) -> None:
    checked = crossed(error)
    assert checked.cause is None
    assert "in caught" in checked.with_place.notes[0]


def test_where_pytest_shows_the_traceback_it_is_not_repeated() -> None:
    (checked,) = with_causes([FAILED], [caught(ValueError("mine"))])
    assert checked.below_cause.notes == ()
    assert "in caught" in checked.with_place.notes[0]
