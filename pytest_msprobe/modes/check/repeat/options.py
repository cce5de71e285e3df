"""The option that repeats calls, and its ini setting."""

from __future__ import annotations

from typing import Literal

import pytest

from pytest_msprobe.run.options import number


def add_options(group: pytest.OptionGroup) -> None:
    """Add the option to the group, and the setting to its parser."""
    group.addoption(
        "--msprobe-repeat",
        metavar="N",
        help="run each call N times on the device, 2 or more, and fail one that differs from itself (default: once)",
    )
    assert group.parser is not None
    # Only with a type does pytest take a number of pyproject.toml for one; before 8.4 it knows none for it.
    kind: Literal["int"] | None = "int" if pytest.version_tuple >= (8, 4) else None
    group.parser.addini(
        "msprobe_repeat",
        "how often each call runs on the device, see --msprobe-repeat (default: once)",
        type=kind,
        default=None,
    )


def read_repeat(config: pytest.Config) -> int | None:
    """Return how often a call runs, None for once. Raises OptionError."""
    times = number(config, "repeat", int, "a number of runs, 2 or more", lambda times: times >= 2)
    return None if times is None else int(times)
