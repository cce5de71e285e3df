"""Parameters of slow tests of which `.ci/run` tries a few; `make nightly` tries the others."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def nightly_but(values: Iterable[Any], *kept: Any) -> list[Any]:
    """Return these values as parameters, of which all but the kept ones have the marker ``nightly``."""
    values = list(values)
    assert all(one in values for one in kept), f"kept, but no parameter: {kept}"
    return [value if value in kept else pytest.param(*_fields(value), marks=pytest.mark.nightly) for value in values]


def _fields(value: Any) -> Collection[Any]:
    return value if isinstance(value, tuple) else (value,)
