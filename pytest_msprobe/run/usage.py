"""The face that pytest's users see: what they gave wrong is a usage error, one text without a traceback."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from pytest_msprobe.errors import USER_ERRORS


@contextlib.contextmanager
def usage_errors() -> Iterator[None]:
    """Raise what the code inside finds wrong as pytest.UsageError."""
    try:
        yield
    except USER_ERRORS as error:
        raise pytest.UsageError(str(error)) from None
