"""Saved failing cases judged again, on any device.

``pytest-msprobe replay failures --device cpu`` runs the call of each case that a check saved, of one folder or of many,
and compares the verdict with that of the case.
It reads the cases that ``--msprobe-save-failures``, live checks and ``precision.check`` write, adds no option to pytest
and writes no file.

Take it out by deleting this folder and tests/extensions/replay.

Importing its modules loads msgspec, torch and yaml.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_msprobe.commands.registry import CommandRegistry

#: Commands of pages on a record that was saved.
NEXT_STEPS = (("Judge the saved case again", ("pytest-msprobe", "replay", "<saved>")),)


def pytest_msprobe_register_commands(registry: CommandRegistry) -> None:
    """Add ``replay``."""
    from pytest_msprobe.commands.registry import RESULTS, Command

    registry.add(
        RESULTS,
        "replay",
        Command(
            "judge saved failing cases again, on any device",
            "failures --device cpu",
            "failing-cases.md",
            f"{__name__}.replay_command",
        ),
    )
