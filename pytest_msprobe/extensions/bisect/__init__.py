"""The search for the call whose precision moves a number, over runs of a command."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_msprobe.commands.registry import CommandRegistry


def pytest_msprobe_register_commands(registry: CommandRegistry) -> None:
    """Add ``bisect``."""
    from pytest_msprobe.commands.registry import TRAININGS, Command

    registry.add(
        TRAININGS,
        "bisect",
        Command(
            "find the call whose precision changes a number of a program",
            "--metric 'loss: (.*)' -- python train.py",
            "bisect.md",
            f"{__name__}.bisect_command",
        ),
    )
