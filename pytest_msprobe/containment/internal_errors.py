"""Unexpected exceptions: the failure of the item that ran, unless they are meant to end the run."""

from __future__ import annotations

import signal
from dataclasses import replace

import pytest

from pytest_msprobe.results.outcomes import Breakdown, describe_error, place_of
from pytest_msprobe.results.result import DirectionResult, failed_without_result


def internal_failure(record: str, error: BaseException) -> DirectionResult:
    """Return the failure of a record at which ``error`` was raised. Raises the error again where it ends the run."""
    if ends_run(error):
        raise error
    if isinstance(error, MemoryError):
        return failed_without_result(record, Breakdown.OOM, f"memory ran out: {describe_error(error)}")
    notes = tuple(filter(None, [place_of(error)]))
    return replace(failed_without_result(record, Breakdown.ERROR, describe_error(error)), notes=notes)


def ends_run(error: BaseException) -> bool:
    """Return whether the user or pytest wants the run to end.

    Where Ctrl-C is ignored, as in a child, it was not pressed: the code under test raised what looks like it.
    """
    if isinstance(error, KeyboardInterrupt):
        return signal.getsignal(signal.SIGINT) is not signal.SIG_IGN
    return isinstance(error, pytest.exit.Exception)
