"""Trend of the margins of runs over time, from their journals: as text, table and page."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_msprobe.commands.registry import CommandRegistry


def pytest_msprobe_register_commands(registry: CommandRegistry) -> None:
    """Add ``report --trend``."""
    registry.add_to_report(f"{__name__}.trend_report")
