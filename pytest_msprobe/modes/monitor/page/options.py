"""Options of the page of watched runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from pytest_msprobe.errors import OptionError
from pytest_msprobe.run.shared_options import HTML, html_file

_EXACT = "--msprobe-html-exact"


@dataclass(frozen=True, slots=True)
class PageOptions:
    """The page's file, and shell patterns of the tensors and modules whose series it keeps step by step."""

    path: Path
    exact: tuple[str, ...]


def add_options(group: pytest.OptionGroup) -> None:
    """Add what only this page has."""
    group.addoption(
        _EXACT,
        metavar="PATTERN",
        action="append",
        default=[],
        help="series that the page of a long watched run keeps step by step, such as 'layers.0.*' (repeatable; the "
        "others keep each bin's least and greatest value)",
    )


def read_options(config: pytest.Config) -> PageOptions | None:
    """Return what was asked for, None where no page was. Raises OptionError that says what is allowed."""
    path, exact = html_file(config), tuple(config.getoption("msprobe_html_exact"))
    if path is None:
        if exact:
            raise OptionError(f"{_EXACT} is about the page of a watched run: give {HTML} FILE as well")
        return None
    return PageOptions(path, exact)


def refuse_stray_options(config: pytest.Config) -> None:
    """Raise OptionError where the page of a watched run is asked for something without such a run."""
    if config.getoption("msprobe_html_exact"):
        raise OptionError(f"{_EXACT} is about the page of a watched run: give --msprobe-monitor RUN as well")
