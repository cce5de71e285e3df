"""Options that several kinds of run understand, added once; a mode names those that it does in ``shared_options``."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from pytest_msprobe.errors import OptionError
from pytest_msprobe.graphs.vis import options as vis_options
from pytest_msprobe.run.mode import Mode, destination

GOLDEN, XLSX, HTML = "--msprobe-golden", "--msprobe-xlsx", "--msprobe-html"
VIS = vis_options.OPTIONS


def add_options(group: pytest.OptionGroup) -> None:
    """Add the options."""
    add = group.addoption
    add(GOLDEN, metavar="PATH", help="dump.json, or a folder of them, or a watched run, to compare with")
    add(XLSX, metavar="DIR", help="write the comparison as workbooks to this folder")
    add(HTML, metavar="FILE", help="write what is checked, compared or watched as one page to look at")
    vis_options.add_options(group)


def refuse_unknown(config: pytest.Config, mode: Mode) -> None:
    """Raise OptionError where one of the options is given to a mode that does not understand it."""
    for flag in (GOLDEN, XLSX, HTML, *VIS):
        if config.getoption(destination(flag)) and flag not in mode.shared_options:
            raise OptionError(f"{flag} is for comparing two runs: give --msprobe-compare PATH")


def golden_path(config: pytest.Config, flag: str, what: str) -> Path:
    """Return the golden path, for ``flag``, which names the ``what`` under test. Raises OptionError."""
    golden: str | None = config.getoption("msprobe_golden")
    if not golden:
        raise OptionError(f"{flag} names the {what} under test: give {GOLDEN} PATH as well")
    path = config.invocation_params.dir / golden
    if not path.exists():
        raise OptionError(f"{GOLDEN} {golden!r}: no such file or folder")
    return path


def xlsx_folder(config: pytest.Config) -> Path | None:
    """Return the folder of workbooks, None where none was asked for. Raises OptionError where it cannot be one."""
    text = config.getoption("msprobe_xlsx")
    if not text:
        return None
    if find_spec("xlsxwriter") is None:
        raise OptionError(f"{XLSX} requires XlsxWriter: pip install 'pytest-msprobe[xlsx]'")
    path = Path(config.invocation_params.dir / text)
    if path.exists() and not path.is_dir():
        raise OptionError(f"{XLSX} {text!r}: expected a folder")
    return path


def html_file(config: pytest.Config) -> Path | None:
    """Return the page's file, None where none was asked for. Raises OptionError where it is a folder."""
    text = config.getoption("msprobe_html")
    path = Path(config.invocation_params.dir / text) if text else None
    if path is not None and path.is_dir():
        raise OptionError(f"{HTML} {text!r}: expected a file")
    return path
