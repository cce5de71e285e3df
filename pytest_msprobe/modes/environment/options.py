"""Options of ``--msprobe-environment``: two that a comparison has as well."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest

from pytest_msprobe.errors import OptionError
from pytest_msprobe.run.golden_option import golden_path

XLSX = "--msprobe-xlsx"


@dataclass(frozen=True, slots=True)
class EnvironmentOptions:
    """The start to compare with, and the folder of msprobe's workbook, None for none."""

    golden: Path
    xlsx: Path | None


environment_key = pytest.StashKey[EnvironmentOptions]()


def read_options(config: pytest.Config) -> EnvironmentOptions:
    """Read and check the options. Raises OptionError that says what is wrong."""
    folder = config.invocation_params.dir
    golden, xlsx = golden_path(config, "--msprobe-environment", "start"), config.getoption("msprobe_xlsx")
    if xlsx and find_spec("xlsxwriter") is None:
        raise OptionError("--msprobe-xlsx requires XlsxWriter: pip install 'pytest-msprobe[xlsx]'")
    if xlsx and (folder / xlsx).exists() and not (folder / xlsx).is_dir():
        raise OptionError(f"--msprobe-xlsx {xlsx!r}: expected a folder")
    return EnvironmentOptions(golden, folder / xlsx if xlsx else None)
