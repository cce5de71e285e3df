"""Checks of the steps of a training while it runs, out of a spool folder.

``pytest-msprobe follow FOLDER -- OPTIONS`` waits for the steps that a recording with ``spool_size`` writes, runs pytest
with these options on each, and removes it from the folder.
It adds no option to pytest. One journal holds the items of all steps.

Take it out by deleting this folder and tests/extensions/follow.

Importing its modules loads msgspec and pytest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_msprobe.commands.registry import CommandRegistry


def pytest_msprobe_register_commands(registry: CommandRegistry) -> None:
    """Add ``follow``."""
    from pytest_msprobe.commands.registry import TRAININGS, Command

    registry.add(
        TRAININGS,
        "follow",
        Command(
            "check the steps of a training while it runs",
            "spool -- --msprobe-device npu:7",
            "live.md",
            f"{__name__}.follow_command",
            passes_words=True,
        ),
    )
