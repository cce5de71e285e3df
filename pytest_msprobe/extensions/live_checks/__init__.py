"""Checks of a program's calls while it runs, with their real inputs. Needs the extension mindspore.

Programs use ``pytest_msprobe.live``, tests the fixture ``msprobe_live``; ``PtdbgDispatch`` compares every operator with
the CPU as msprobe's ``PtdbgDispatch`` does. The options of a check, such as ``--msprobe-policy``, hold for the fixture.
With ``journal=FILE`` a program writes a journal, ``PtdbgDispatch`` writes msprobe's tables.

Take it out by deleting this folder and tests/extensions/live_checks.

Importing its modules loads isal, mindspore, msgspec, pytest, torch and yaml.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_msprobe.commands.registry import CommandRegistry

#: The module of each name that ``pytest_msprobe`` has from here.
EXPORTS = {
    "LiveChecks": "session",
    "PtdbgDispatch": "ptdbg_dispatch",
    "TestLive": "live_fixture",
    "live": "session",
}


def pytest_msprobe_register_commands(registry: CommandRegistry) -> None:
    """Add what ``report`` says of a live check."""
    registry.add_to_report(f"{__name__}.live_notes")
