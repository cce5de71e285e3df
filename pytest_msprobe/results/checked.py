"""Outcome of a check in a test, with the exception that it failed by."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pytest_msprobe.results.outcomes import place_of, users_error
from pytest_msprobe.results.result import DirectionResult, from_plain, to_plain


@dataclass(frozen=True, slots=True)
class Checked:
    """One result, what the user's code raised for it, and in words where; None and empty where nothing was raised."""

    result: DirectionResult
    cause: BaseException | None = None
    place: str = ""

    @property
    def with_place(self) -> DirectionResult:
        """The result with the place of what was raised, for reports that do not show the exception."""
        return replace(self.result, notes=(*self.result.notes, self.place)) if self.place else self.result

    @property
    def below_cause(self) -> DirectionResult:
        """The result for a text that pytest shows below the cause, whose traceback it may have got."""
        has_traceback = self.cause is not None and self.cause.__traceback__ is not None
        return self.result if has_traceback else self.with_place


def with_causes(results: Sequence[DirectionResult], raised: Sequence[BaseException]) -> list[Checked]:
    """Return the results of one check; what its function or golden ``raised`` belongs to the first failure."""
    failed = next((result for result in results if result.verdict.outcome == "fail"), None)
    checked = [Checked(result) for result in results]
    if failed is not None and failed.breakdown is not None and raised:
        cause = users_error(raised[0])
        checked[results.index(failed)] = Checked(failed, cause, place_of(cause))
    return checked


def to_message(checked: Checked) -> dict[str, Any]:
    """Return it as what crosses to another process of the same program."""
    return {"result": to_plain(checked.result), "cause": _pickled(checked.cause), "place": checked.place}


def from_message(message: Mapping[str, Any]) -> Checked:
    """Return what `to_message` took apart; the cause comes without its traceback, or not at all."""
    return Checked(from_plain(message["result"]), _unpickled(message["cause"]), message["place"])


def _pickled(cause: BaseException | None) -> bytes:
    try:
        return b"" if cause is None else pickle.dumps(cause)
    except Exception:
        # A class or a value of the user's may refuse; the text of the failure has what it says.
        return b""


def _unpickled(cause: bytes) -> BaseException | None:
    try:
        error = pickle.loads(cause) if cause else None
    except Exception:
        return None
    return error if isinstance(error, BaseException) else None
