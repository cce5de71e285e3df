"""Options of the page of monitored runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from pytest_msprobe.errors import no_effect
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
        help="with --msprobe-html, series that the page of a long run keeps step by step, such as 'layers.0.*' "
        "(repeatable; default: the minimum and maximum of several steps)",
    )


def read_options(config: pytest.Config) -> PageOptions | None:
    """Return what was asked for, None where no page was. Raises OptionError."""
    path, exact = html_file(config), tuple(config.getoption("msprobe_html_exact"))
    if path is None:
        if exact:
            raise no_effect(_EXACT, f"{HTML} FILE")
        return None
    return PageOptions(path, exact)


def refuse_stray_options(config: pytest.Config) -> None:
    """Raise OptionError where an option of the page is passed without a monitored run."""
    if config.getoption("msprobe_html_exact"):
        raise no_effect(_EXACT, "--msprobe-monitor RUN")
