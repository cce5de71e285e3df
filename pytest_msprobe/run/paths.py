"""Paths that a user names: where they are, and folders that a run writes into."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pytest_msprobe.errors import OptionError


def absolute(config: pytest.Config, path: str) -> Path:
    """Return where a path is, as pytest makes its arguments absolute: symbolic links stay."""
    return Path(os.path.abspath(config.invocation_params.dir / path))  # noqa: PTH100


def make_folder(flag: str, folder: Path) -> None:
    """Make the folder that an option names now, so that a wrong one costs no run. Raises OptionError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OptionError(f"{flag} {str(folder)!r}: {error.strerror}") from None
