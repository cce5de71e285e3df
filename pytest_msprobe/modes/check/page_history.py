"""The setting that adds the results of earlier runs to the page of a check."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from pytest_msprobe.errors import OptionError
from pytest_msprobe.run.option_fields import add_fields, as_path, read_field, refuse_without, setting
from pytest_msprobe.run.shared_options import HTML, html_file

SETTING = "msprobe_history"


def _folder(config: pytest.Config, name: str, text: str) -> Path:
    path = as_path(config, name, text)
    if not path.is_dir():
        raise OptionError(f"{name} {text!r}: {'not a directory' if path.exists() else 'no such directory'}")
    return path


@dataclass(frozen=True, slots=True)
class HistoryOptions:
    """The folder of journals."""

    folder: Path | None = setting(
        SETTING,
        "folder of journals, *.jsonl: the page of a check shows what they hold of each record",
        read=_folder,
    )


def add_options(group: pytest.OptionGroup) -> None:
    """Add the setting."""
    add_fields(group, HistoryOptions)


def read_history(config: pytest.Config) -> Path | None:
    """Return the folder of journals, None where there is no page or none is set. Raises OptionError."""
    if html_file(config) is None:
        refuse_without(config, HistoryOptions, f"{HTML} FILE")
        return None
    folder: Path | None = read_field(config, HistoryOptions, "folder")
    return folder
