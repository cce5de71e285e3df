"""MindSpore: its functions as the target, torch's on the CPU as the golden definition."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_msprobe.commands.registry import CommandRegistry


def pytest_msprobe_register_commands(registry: CommandRegistry) -> None:
    """Add ``code-mapping``."""
    from pytest_msprobe.commands.registry import Command

    registry.add_of_msprobe(
        "code-mapping",
        Command(
            "find the source lines of the kernels of a MindSpore graph",
            "dump/rank_0 --output tables",
            "mindspore.md",
            f"{__name__}.code_mapping_command",
        ),
    )
