"""The standard that a test's ``precision_standard`` marker names, in place of the policy's."""

from __future__ import annotations

import linecache
from typing import TYPE_CHECKING

import pytest

from pytest_msprobe.errors import OptionError
from pytest_msprobe.run.setups import setups_key

if TYPE_CHECKING:
    from msprobe_standards import Standard

MARKER = "precision_standard"

# A test's decorators are on its first lines.
_LINES = 20


def standard_of(item: pytest.Item) -> Standard | None:
    """Return the standard that judges a test's checks; None where the policy chooses.

    Raises OptionError where there is none of that name, or no such limit.
    """
    marker = item.get_closest_marker(MARKER)
    if marker is None:
        return None
    if len(marker.args) != 1 or not isinstance(marker.args[0], str):
        needed = f'needs the name of one standard, and its limits by name: {MARKER}("ulp", max_ulp=4)'
        raise OptionError(f"{MARKER}: {needed}", file=_place(item))
    try:
        return item.config.stash[setups_key].standards.make(marker.args[0], **marker.kwargs)
    except ValueError as error:
        raise OptionError(f"{MARKER}: {error}", file=_place(item)) from None


def require_known(item: pytest.Item) -> None:
    """Fail a test whose marker names no standard, whatever it goes on to check."""
    problem = ""
    try:
        standard_of(item)
    except OptionError as error:
        problem = str(error)
    if problem:
        pytest.fail(problem, pytrace=False)


def _place(item: pytest.Item) -> str:
    """Return the file and the line of the marker, or of the test where the marker is of its class or module."""
    path, line, _ = item.location
    code = getattr(getattr(item, "obj", None), "__code__", None)
    first = (line or 0) + 1
    if code is not None:
        lines = (linecache.getline(str(item.path), number) for number in range(first, code.co_firstlineno + _LINES))
        first = next((number for number, text in enumerate(lines, first) if MARKER in text), first)
    return f"{path}:{first}"
