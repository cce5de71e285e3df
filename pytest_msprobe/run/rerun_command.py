"""The command that runs an item again, and paths as it has them."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from msprobe_hooks.dump.recording_paths import home_of
from pytest_msprobe.devices.registry import on_card
from pytest_msprobe.reports.pages import NextStep, below
from pytest_msprobe.run.mode import modes_of
from pytest_msprobe.run.options import Options, options_key


def display_path(config: pytest.Config, path: Path) -> str:
    """Return a file, or a dump, as seen from the folder in which pytest was started, where it lies below that."""
    return below(config.invocation_params.dir, home_of(path))


def record_argument(options: Options, dump: Path | str, record: str) -> str:
    """Return the argument that chooses one record of a dump."""
    # As an option, in one word, the dump's place changes neither pytest's rootdir nor which conftest.py are loaded.
    return f"{options.mode.flag}={dump}::{record}"


def rerun_command(config: pytest.Config, dump: Path | str, record: str, card: str = "") -> str:
    """Return the command that runs one record again, under the same options and on the card that it ran on."""
    options = config.stash[options_key]
    words = on_card(options.mode.rerun_words(config), card)
    return shlex.join(["pytest", record_argument(options, dump, record), *words])


def rerun_step(config: pytest.Config) -> NextStep:
    """Return the command on a page that runs its record again, with paths as seen from where pytest was started."""
    words = shlex.split(rerun_command(config, "<dump>", "<record>"))
    return "Run this item alone", [word.removeprefix(f"{config.invocation_params.dir}/") for word in words]


def rerun_test_command(item: pytest.Item, card: str) -> str:
    """Return the command that runs one of the user's own tests again, from whichever folder.

    Without a mode's flag, that is a run of the default mode, whatever this one is.
    """
    test = f"{item.path}::{item.nodeid.partition('::')[2]}"
    return shlex.join(["pytest", test, *on_card(modes_of(item.config).default.rerun_words(item.config), card)])
