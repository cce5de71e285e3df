"""Trend of the margins of runs over time, from their journals: as text, table and page.

``pytest-msprobe report --trend A.jsonl B.jsonl`` lists the calls whose margin grows from run to run, though none failed
yet; ``--html FILE`` writes a page of their curves, ``--csv`` a table.
It adds no option to pytest.

Take it out by deleting this folder and tests/extensions/trend.

Importing its modules loads msgspec and pytest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_msprobe.commands.registry import CommandRegistry


def pytest_msprobe_register_commands(registry: CommandRegistry) -> None:
    """Add ``report --trend``."""
    registry.add_to_report(f"{__name__}.trend_report")
