"""Free benchmark."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_msprobe.commands.registry import CommandRegistry


def pytest_msprobe_register_commands(registry: CommandRegistry) -> None:
    """Add free_benchmark.csv to the tables of ``report --csv``."""
    registry.add_to_report(f"{__name__}.perturb_table")
