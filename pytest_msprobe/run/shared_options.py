"""Options that several kinds of run understand, added once; a mode names those that it does in ``shared_options``."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from pytest_msprobe.errors import OptionError
from pytest_msprobe.extensions.graphs.vis import options as vis_options
from pytest_msprobe.run.mode import Mode, destination, modes_of
from pytest_msprobe.run.option_groups import COMPARE, RESULTS, option_group

GOLDEN, XLSX, HTML = "--msprobe-golden", "--msprobe-xlsx", "--msprobe-html"
MODEL_NAMES, MODEL_CONFIG = "--msprobe-model-names", "--msprobe-model-config"
VIS = vis_options.OPTIONS


def add_options(parser: pytest.Parser) -> None:
    """Add the options."""
    option_group(parser, COMPARE).addoption(
        GOLDEN,
        metavar="PATH",
        help="golden run to compare with: a dump.json or a folder of them, a monitored run, a launch configuration or "
        "a checkpoint",
    )
    option_group(parser, COMPARE).addoption(
        MODEL_NAMES,
        metavar="FILE",
        action="append",
        default=[],
        help="YAML file with names of a model in other frameworks, in addition to the built-in ones; may be repeated",
    )
    option_group(parser, COMPARE).addoption(
        MODEL_CONFIG,
        metavar="FILE",
        help="config.json of the model: its numbers of heads say where parts lie in fused parameters",
    )
    group = option_group(parser, RESULTS)
    add = group.addoption
    add(HTML, metavar="FILE", help="write what came of the run to this file as one HTML page")
    add(XLSX, metavar="DIR", help="write the comparison to this folder as Excel workbooks")
    vis_options.add_options(group)


def refuse_unknown(config: pytest.Config, mode: Mode) -> None:
    """Raise OptionError where one of the options is passed to a mode that does not understand it."""
    for flag in (GOLDEN, XLSX, HTML, MODEL_NAMES, MODEL_CONFIG, *VIS):
        if config.getoption(destination(flag)) and flag not in mode.shared_options:
            flags = [other.flag for other in modes_of(config) if flag in other.shared_options]
            raise OptionError(f"{flag} does not work with {mode.flag}", remedy=f"use it with {' or '.join(flags)}")


def golden_path(config: pytest.Config, flag: str, what: str) -> Path:
    """Return the golden path, for ``flag``, which compares a ``what`` with it. Raises OptionError."""
    golden: str | None = config.getoption("msprobe_golden")
    if not golden:
        raise OptionError(f"{flag} needs a golden {what}", remedy=f"pass {GOLDEN} PATH")
    path = config.invocation_params.dir / golden
    if not path.exists():
        raise OptionError(f"{GOLDEN} {golden!r}: no such file or directory")
    return path


def model_name_files(config: pytest.Config) -> tuple[Path, ...]:
    """Return the files of names that were passed. Raises OptionError where one does not exist."""
    texts: list[str] = config.getoption(destination(MODEL_NAMES))
    for text in texts:
        if not (config.invocation_params.dir / text).is_file():
            raise OptionError(f"{MODEL_NAMES} {text!r}: no such file")
    return tuple(config.invocation_params.dir / text for text in texts)


def model_config(config: pytest.Config) -> Path | None:
    """Return the model's configuration, None where none was passed. Raises OptionError where it does not exist."""
    text: str | None = config.getoption(destination(MODEL_CONFIG))
    path = config.invocation_params.dir / text if text else None
    if path is not None and not path.is_file():
        raise OptionError(f"{MODEL_CONFIG} {text!r}: no such file")
    return path


def xlsx_folder(config: pytest.Config) -> Path | None:
    """Return the folder of workbooks, None where none was asked for. Raises OptionError where it cannot be one."""
    text = config.getoption("msprobe_xlsx")
    if not text:
        return None
    if find_spec("xlsxwriter") is None:
        raise OptionError(f"{XLSX} needs XlsxWriter", remedy="pip install 'pytest-msprobe[xlsx]'")
    path = Path(config.invocation_params.dir / text)
    if path.exists() and not path.is_dir():
        raise OptionError(f"{XLSX} {text!r}: not a directory")
    return path


def html_file(config: pytest.Config) -> Path | None:
    """Return the page's file, None where none was asked for. Raises OptionError where it is a folder."""
    text = config.getoption("msprobe_html")
    path = Path(config.invocation_params.dir / text) if text else None
    if path is not None and path.is_dir():
        raise OptionError(f"{HTML} {text!r}: a directory", remedy="pass the name of a file")
    return path
