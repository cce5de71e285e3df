"""The options that run calls again: repeated, or on parts of the batch; nothing here imports torch."""

from __future__ import annotations

from typing import Literal

import pytest

from pytest_msprobe.run.options import number


def add_options(group: pytest.OptionGroup) -> None:
    """Add the options to the group, and the setting of ``--msprobe-repeat`` to its parser."""
    group.addoption(
        "--msprobe-repeat",
        metavar="N",
        help="run each call N times on the device, 2 or more, and fail calls whose results differ (default: once)",
    )
    assert group.parser is not None
    # Without a type, pytest does not read a number of pyproject.toml as one; before 8.4 it has no such type.
    kind: Literal["int"] | None = "int" if pytest.version_tuple >= (8, 4) else None
    group.parser.addini(
        "msprobe_repeat",
        "number of runs of each call on the device, see --msprobe-repeat (default: once)",
        type=kind,
        default=None,
    )
    group.addoption(
        "--msprobe-batch-invariant",
        action="store_true",
        help="run each call whose rows are independent on single rows and other parts of its batch too, and fail calls "
        "whose rows then have other bits (default: the whole batch only)",
    )


def read_repeat(config: pytest.Config) -> int | None:
    """Return how often a call runs, None for once. Raises OptionError."""
    times = number(config, "repeat", int, "a number of runs, 2 or more", lambda times: times >= 2)
    return None if times is None else int(times)
