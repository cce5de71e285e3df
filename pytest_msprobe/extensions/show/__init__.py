"""Tensors looked at: what a file, a record or a saved case holds, and where two of them differ."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_msprobe.commands.registry import CommandRegistry


def pytest_msprobe_register_commands(registry: CommandRegistry) -> None:
    """Add ``show``."""
    from pytest_msprobe.commands.registry import RECORDED, Command

    registry.add(
        RECORDED,
        "show",
        Command(
            "inspect a tensor, a record or a saved case; compare two",
            "ours.npy theirs.npy",
            "show.md",
            f"{__name__}.show_command",
        ),
    )
