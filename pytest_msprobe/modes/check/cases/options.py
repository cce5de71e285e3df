"""The option that saves failing cases."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_msprobe.errors import OptionError
from pytest_msprobe.modes.check.save_limit import SaveLimit, save_options
from pytest_msprobe.run.msprobe_config import run_ut
from pytest_msprobe.run.option_fields import is_passed, refuse_without

if TYPE_CHECKING:
    from pytest_msprobe.storage.limits import SaveOptions


def add_options(group: pytest.OptionGroup) -> None:
    """Add the option to the group."""
    group.addoption(
        "--msprobe-save-failures",
        metavar="DIR",
        help="save the inputs and results of each failing record to this folder, for pytest-msprobe replay",
    )


def read_save_options(config: pytest.Config) -> SaveOptions | None:
    """Return what the user asked for, by option or msprobe's configuration, None where nothing is to be saved.

    Raises OptionError.
    """
    text: Any = config.getoption("msprobe_save_failures") or run_ut(config).error_data_path
    if not text:
        if not is_passed(config, "--msprobe-save-baseline"):
            refuse_without(config, SaveLimit, "--msprobe-save-failures DIR")
        return None
    folder = Path(config.invocation_params.dir / text)
    if folder.exists() and not folder.is_dir():
        raise OptionError(f"--msprobe-save-failures {str(text)!r}: not a directory")
    return save_options(config, folder, "--msprobe-save-failures")
