"""The option that limits what a check saves: failing cases, and the tensors of a baseline."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from pytest_msprobe.errors import OptionError
from pytest_msprobe.storage.limits import DEFAULT_LIMITS, SaveOptions, parse_limits


def add_options(group: pytest.OptionGroup) -> None:
    """Add the option to the group."""
    group.addoption(
        "--msprobe-save-limit",
        metavar="ONE[,FOLDER]",
        help="maximum size of one saved case, or of one record's baseline tensors, and of the whole folder, such as "
        f"500MiB,20GiB (default: {DEFAULT_LIMITS})",
    )


def save_options(config: pytest.Config, folder: Path, option: str) -> SaveOptions:
    """Return how an option's files are saved.

    Raises OptionError where the limits are not sizes or safetensors is not installed.
    """
    if importlib.util.find_spec("safetensors") is None:
        raise OptionError(f"{option} needs safetensors", remedy="pip install 'pytest-msprobe[cases]'")
    text: Any = config.getoption("msprobe_save_limit")
    try:
        return SaveOptions(folder, *parse_limits(text or DEFAULT_LIMITS))
    except ValueError as error:
        raise OptionError(f"--msprobe-save-limit {error}") from None
