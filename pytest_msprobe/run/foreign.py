"""Whether somebody who is neither pytest nor we listens to a hook."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

# xdist only passes on what it hears.
_KNOWN = frozenset({"_pytest", "xdist", "pytest_msprobe"})


def has_foreign(config: pytest.Config, hooks: Iterable[str]) -> bool:
    """Tell whether another plugin or a ``conftest.py`` that is loaded by now implements one of the hooks."""
    return any(
        implementation.function.__module__.partition(".")[0] not in _KNOWN
        for name in hooks
        for implementation in getattr(config.hook, name).get_hookimpls()
    )
