"""The standard that a test's ``precision_standard`` marker names, in place of the policy's."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import pytest

from pytest_msprobe.errors import OptionError
from pytest_msprobe.run.item import JudgedItem
from pytest_msprobe.run.setups import setups_key

if TYPE_CHECKING:
    from msprobe_standards import Standard

MARKER = "precision_standard"


def standard_of(item: pytest.Item) -> Standard | None:
    """Return the standard that judges a test's checks; None where the policy chooses.

    Raises OptionError where there is none of that name, or no such limit.
    """
    marker = item.get_closest_marker(MARKER)
    if marker is None:
        return None
    try:
        return item.config.stash[setups_key].standards.make(*marker.args, **marker.kwargs)
    except (TypeError, ValueError) as error:
        raise OptionError(f"{item.nodeid}: {MARKER}: {error}") from None


def require_known(items: Iterable[pytest.Item]) -> None:
    """Raise OptionError for the first test whose marker names no standard, whatever the test goes on to check."""
    for item in items:
        if not isinstance(item, JudgedItem):
            standard_of(item)
