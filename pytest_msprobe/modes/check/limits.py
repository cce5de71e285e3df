"""The option that bounds whatever is saved."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from pytest_msprobe.errors import OptionError
from pytest_msprobe.storage.sizes import SaveOptions, parse_size

_DEFAULT_LIMIT = "1GiB,10GiB"


def add_options(group: pytest.OptionGroup) -> None:
    """Add the option."""
    group.addoption(
        "--msprobe-save-limit",
        metavar="ONE[,FOLDER]",
        help="the most that one saved case, or one record's tensors of a baseline, and the whole folder may take "
        f"(default: {_DEFAULT_LIMIT})",
    )


def save_options(config: pytest.Config, folder: Path, option: str) -> SaveOptions:
    """Return how an option's files are saved.

    Raises OptionError where the limits are no sizes or safetensors is not installed.
    """
    if importlib.util.find_spec("safetensors") is None:
        raise OptionError(f"{option} needs safetensors: install it with pip install 'pytest-msprobe[cases]'")
    text: Any = config.getoption("msprobe_save_limit")
    one_limit, folder_limit = _limits(text or _DEFAULT_LIMIT)
    return SaveOptions(folder, one_limit, folder_limit)


def _limits(text: str) -> tuple[int, int]:
    sizes = [parse_size(part.strip()) for part in text.split(",")]
    if not 1 <= len(sizes) <= 2 or None in sizes:
        raise OptionError(
            f"--msprobe-save-limit {text!r}: expected a size, or two with a comma, such as 500MiB or {_DEFAULT_LIMIT}"
        )
    first, last = sizes[0] or 0, sizes[-1] or 0
    return first, last if len(sizes) == 2 else max(first, _limits(_DEFAULT_LIMIT)[1])
