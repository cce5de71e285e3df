"""Options of containment: how long an item may take, and whether it runs in a child."""

from __future__ import annotations

import os
from dataclasses import dataclass

import pytest

from pytest_msprobe.errors import OptionError
from pytest_msprobe.run.option_fields import add_fields, number, option, read_field


@dataclass(frozen=True, slots=True)
class ContainmentOptions:
    """The time limit of an item in seconds, None for no limit, and whether items run in a child process."""

    timeout: float | None = option(
        "--msprobe-timeout",
        "fail an item that takes longer than this many seconds; large records get more (default: no limit)",
        metavar="SECONDS",
        read=number(float, "a positive number of seconds", lambda seconds: seconds > 0),
    )
    isolate: bool = option(
        "--msprobe-isolate", "run items in a child process, which is replaced if an item kills it or hangs"
    )


def add_options(group: pytest.OptionGroup) -> None:
    """Add the options to the group."""
    add_fields(group, ContainmentOptions)


def read_timeout(config: pytest.Config) -> float | None:
    """Return the time limit of an item, None for no limit. Raises OptionError."""
    seconds: float | None = read_field(config, ContainmentOptions, "timeout")
    return seconds


def read_isolate(config: pytest.Config) -> bool:
    """Return whether items run in a child. Raises OptionError where the system cannot do that."""
    is_isolated = bool(read_field(config, ContainmentOptions, "isolate"))
    if is_isolated and not hasattr(os, "fork"):
        raise OptionError("--msprobe-isolate: this system has no fork(); use -n 1, which runs items in a worker")
    return is_isolated
