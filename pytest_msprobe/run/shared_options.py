"""Options that several kinds of run understand, added once; a mode names those that it does in ``shared_options``."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest

from pytest_msprobe.errors import OptionError
from pytest_msprobe.run.mode import Mode, modes_of
from pytest_msprobe.run.option_data import COMPARE, RESULTS
from pytest_msprobe.run.option_fields import (
    declared_fields,
    existing,
    existing_file,
    is_passed,
    option,
    output_file,
    output_folder,
    read_field,
)

GOLDEN, XLSX, HTML, JSON = "--msprobe-golden", "--msprobe-xlsx", "--msprobe-html", "--msprobe-json"
MAPPING, MODEL_CONFIG = "--msprobe-mapping", "--msprobe-model-config"


def _workbooks(config: pytest.Config, name: str, text: str) -> Path:
    if find_spec("xlsxwriter") is None:
        raise OptionError(f"{name} needs XlsxWriter", remedy="pip install 'pytest-msprobe[xlsx]'")
    return output_folder(config, name, text)


@dataclass(frozen=True, slots=True)
class SharedOptions:
    """Values of the shared options; modes read those that they understand."""

    golden: Path | None = option(
        GOLDEN,
        "golden run to compare with: a dump.json or a folder of them, a monitored run, a launch configuration or a "
        "checkpoint",
        metavar="PATH",
        read=existing,
        group=COMPARE,
    )
    mappings: tuple[Path, ...] = option(
        MAPPING,
        "YAML file of names of one run in another; its keys say of what: api, cell, layer, data or model_names "
        "(repeatable)",
        metavar="FILE",
        read=existing_file,
        repeat=True,
        group=COMPARE,
    )
    model_config: Path | None = option(
        MODEL_CONFIG,
        "config.json of the model: its numbers of heads say where parts lie in fused parameters",
        metavar="FILE",
        read=existing_file,
        group=COMPARE,
    )
    html: Path | None = option(
        HTML,
        "write what came of the run to this file as one HTML page",
        metavar="FILE",
        read=output_file,
        group=RESULTS,
    )
    xlsx: Path | None = option(
        XLSX,
        "write the comparison to this folder as Excel workbooks",
        metavar="DIR",
        read=_workbooks,
        group=RESULTS,
    )
    json: str | None = option(
        JSON,
        "write msprobe's JSON of the run: a folder for anomaly_analyze files of overflow and for rank<n>/anomaly.json "
        "of a monitored run, a file for a checkpoint and for a comparison with an inference engine",
        metavar="PATH",
        group=RESULTS,
    )


def refuse_unknown(config: pytest.Config, mode: Mode) -> None:
    """Raise OptionError where one of the options is passed to a mode that does not understand it."""
    for _, declared in declared_fields(SharedOptions):
        flag = declared.name
        if is_passed(config, flag) and flag not in mode.shared_options:
            modes = modes_of(config)
            flags = [other.flag for other in modes if flag in other.shared_options]
            wrong = f"does not work with {mode.flag}" if modes.flagged(config) else "has nothing that it belongs to"
            raise OptionError(f"{flag} {wrong}", remedy=f"use it with {' or '.join(flags)}")


def golden_path(config: pytest.Config, flag: str, what: str) -> Path:
    """Return the golden path, for ``flag``, which compares a ``what`` with it. Raises OptionError."""
    path: Path | None = read_field(config, SharedOptions, "golden")
    if path is None:
        raise OptionError(f"{flag} needs a golden {what}", remedy=f"pass {GOLDEN} PATH")
    return path


def xlsx_folder(config: pytest.Config) -> Path | None:
    """Return the folder of workbooks, None where none was asked for. Raises OptionError where it cannot be one."""
    path: Path | None = read_field(config, SharedOptions, "xlsx")
    return path


def html_file(config: pytest.Config) -> Path | None:
    """Return the page's file, None where none was asked for. Raises OptionError where it is a folder."""
    path: Path | None = read_field(config, SharedOptions, "html")
    return path
