"""Facts about a machine that a check needs: the first thing that a report of a bug asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_msprobe.commands.registry import CommandRegistry


def pytest_msprobe_register_commands(registry: CommandRegistry) -> None:
    """Add ``doctor``."""
    from pytest_msprobe.commands.registry import MACHINE, Command

    registry.add(
        MACHINE,
        "doctor",
        Command(
            "report what this machine has and what a dump needs",
            "dump.json",
            "doctor.md",
            f"{__name__}.doctor_command",
        ),
    )
