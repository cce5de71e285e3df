"""The setting that limits what a check saves: failing cases, and the tensors of a baseline."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_msprobe.errors import OptionError
from pytest_msprobe.run.option_fields import add_fields, read_field, setting

if TYPE_CHECKING:
    from pytest_msprobe.storage.limits import SaveOptions

_LIMIT = "msprobe_save_limit"
_DEFAULT = "1GiB,10GiB"


@dataclass(frozen=True, slots=True)
class SaveLimit:
    """The limits as they are written."""

    text: str = setting(
        _LIMIT,
        "maximum size of one saved case, or of one record's baseline tensors, and of the whole folder, ONE[,FOLDER], "
        f"such as 500MiB,20GiB (default: {_DEFAULT})",
        default=_DEFAULT,
    )


def add_options(group: pytest.OptionGroup) -> None:
    """Add the setting."""
    add_fields(group, SaveLimit)


def save_options(config: pytest.Config, folder: Path, option: str) -> SaveOptions:
    """Return how an option's files are saved.

    Raises OptionError where the limits are not sizes or safetensors is not installed.
    """
    from pytest_msprobe.storage.limits import SaveOptions, parse_limits

    if importlib.util.find_spec("safetensors") is None:
        raise OptionError(f"{option} needs safetensors", remedy="pip install 'pytest-msprobe[cases]'")
    try:
        return SaveOptions(folder, *parse_limits(read_field(config, SaveLimit, "text")))
    except ValueError as error:
        raise OptionError(f"{_LIMIT} {error}") from None
