"""Facts about a machine that a check needs: the first thing that a report of a bug asks for.

``pytest-msprobe doctor`` reports Python, the frameworks, devices and what each of them lacks; ``pytest-msprobe doctor
dump.json`` also reports what the records of a dump need and which of them will be skipped.
Each fact is found in a process of its own, so that a library that hangs or crashes costs its own line alone.
It adds no option to pytest and writes no file.

Take it out by deleting this folder and tests/extensions/doctor.

Importing its modules loads msgspec.
"""

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
            "tools.md",
            f"{__name__}.doctor_command",
        ),
    )
