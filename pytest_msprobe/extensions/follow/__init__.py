"""Checking the steps of a training while it runs, out of a spool folder."""

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
            "follow.md",
            f"{__name__}.follow_command",
            passes_words=True,
        ),
    )
