"""The faces that pytest's users see: what they gave wrong is one text without a traceback."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from pytest_msprobe.errors import USER_ERRORS
from pytest_msprobe.reports.text import printable


@contextlib.contextmanager
def usage_errors() -> Iterator[None]:
    """Raise what the code inside finds wrong as pytest.UsageError."""
    try:
        yield
    except USER_ERRORS as error:
        raise pytest.UsageError(printable(str(error))) from None


@contextlib.contextmanager
def fail_on_user_error(what: str = "") -> Iterator[None]:
    """Fail the test that runs for what the code inside finds wrong; ``what`` begins the text."""
    __tracebackhide__ = True
    try:
        yield
    except USER_ERRORS as error:
        # The error is all in the text: shown before it, it would be reported twice.
        raise pytest.fail.Exception(printable(f"{what}: {error}" if what else str(error)), pytrace=False) from None
