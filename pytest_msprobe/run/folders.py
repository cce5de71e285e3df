"""Folders that a run writes into."""

from __future__ import annotations

from pathlib import Path

from pytest_msprobe.errors import OptionError


def make_folder(flag: str, folder: Path) -> None:
    """Make the folder that an option names now, so that a wrong one costs no run. Raises OptionError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OptionError(f"{flag} {str(folder)!r}: {error.strerror}") from None
