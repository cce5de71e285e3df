"""Options of the page of watched runs; its file is the one that a comparison's page has."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from pytest_msprobe.errors import OptionError

#: The option of another mode that names the page's file.
HTML = "--msprobe-html"
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
    text, exact = config.getoption("msprobe_html"), tuple(config.getoption("msprobe_html_exact"))
    if not text:
        if exact:
            raise OptionError(f"{_EXACT} is about the page of a watched run: give {HTML} FILE as well")
        return None
    path = Path(config.invocation_params.dir / text)
    if path.is_dir():
        raise OptionError(f"{HTML} {text!r}: expected a file")
    return PageOptions(path, exact)


def refuse_stray_options(config: pytest.Config) -> None:
    """Raise OptionError where the page of a watched run is asked for something without such a run."""
    if config.getoption("msprobe_html_exact"):
        raise OptionError(f"{_EXACT} is about the page of a watched run: give --msprobe-monitor RUN as well")
