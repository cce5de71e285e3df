"""The options that say how items are contained."""

from __future__ import annotations

import os

import pytest

from pytest_msprobe.errors import OptionError


def add_options(group: pytest.OptionGroup) -> None:
    """Add the options to the group."""
    group.addoption(
        "--msprobe-timeout",
        metavar="SECONDS",
        help="fail an item that takes longer than this many seconds; large records get more (default: no limit)",
    )
    group.addoption(
        "--msprobe-isolate",
        action="store_true",
        help="run items in a child process, which is replaced if an item kills it or hangs",
    )


def read_isolate(config: pytest.Config) -> bool:
    """Return whether items run in a child. Raises OptionError where the system cannot do that."""
    is_isolated = bool(config.getoption("msprobe_isolate"))
    if is_isolated and not hasattr(os, "fork"):
        raise OptionError("--msprobe-isolate: this system has no fork(); use -n 1, which runs items in a worker")
    return is_isolated
