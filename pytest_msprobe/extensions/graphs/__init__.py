"""A recorded run as a graph: its modules and calls as a tree, the partners of a second run, and how precise each is."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_msprobe.commands.registry import CommandRegistry


def pytest_msprobe_register_commands(registry: CommandRegistry) -> None:
    """Add ``graph``."""
    from pytest_msprobe.commands.registry import RECORDED, Command

    registry.add(
        RECORDED,
        "graph",
        Command(
            "draw one or two recorded runs as a graph",
            "dump.json --golden golden/dump.json --html graph.html",
            "graph.md",
            f"{__name__}.graph_command",
        ),
    )
