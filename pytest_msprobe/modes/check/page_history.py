"""The option that adds the results of earlier runs to the page of a check."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_msprobe.errors import OptionError, no_effect
from pytest_msprobe.run.mode import destination
from pytest_msprobe.run.shared_options import HTML

FLAG = "--msprobe-history"


def add_options(group: pytest.OptionGroup) -> None:
    """Add the option to the group."""
    group.addoption(
        FLAG,
        metavar="DIR",
        help=f"with {HTML}, show on the page of a check what the journals of this folder, *.jsonl, hold of each record",
    )


def read_history(config: pytest.Config) -> Path | None:
    """Return the folder of journals, None where none was passed. Raises OptionError where it is none."""
    text: str | None = config.getoption(destination(FLAG))
    if not text:
        return None
    if not config.getoption(destination(HTML)):
        raise no_effect(FLAG, f"{HTML} FILE")
    path = Path(config.invocation_params.dir / text)
    if not path.is_dir():
        raise OptionError(f"{FLAG} {text!r}: {'not a directory' if path.exists() else 'no such directory'}")
    return path
