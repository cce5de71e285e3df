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
    from pytest_msprobe.journal import Journal
    from pytest_msprobe.reports.check_page.rows import AboutRun

#: The module of each name that ``pytest_msprobe`` has from here.
EXPORTS = {
    "LiveChecks": "session",
    "PtdbgDispatch": "ptdbg_dispatch",
    "TestLive": "live_fixture",
    "live": "session",
}


def pytest_msprobe_register_commands(registry: CommandRegistry) -> None:
    """Add what ``report`` says of a live check."""
    registry.add_to_report(__name__)


def about_run(journal: Journal) -> AboutRun | None:
    """Return what the head of a page says of a live check: what runs one of its calls again is the training."""
    from pytest_msprobe.reports.check_page.rows import AboutRun

    if journal.header.settings.get("mode") != "live":
        return None
    return AboutRun(_notes(journal), "Run the training again")


def _notes(journal: Journal) -> list[str]:
    """Return what a live check judged, and what it left out."""
    from collections import Counter

    from msprobe_hooks.messages import counted

    outcomes = Counter(entry.outcome for entry in journal.entries.values())
    skipped = outcomes["skip"]
    judged = counted(outcomes.total() - skipped, "result")
    without = f"; {skipped} more without a verdict" if skipped else ""
    lines = [f"Judged while the training ran: {judged} of {_steps(journal)}{without}."]
    if journal.left_out is None:
        return [*lines, "The check did not come to its end: what it left out is not known."]
    left_out = sorted(journal.left_out.items(), key=lambda item: -item[1])
    reasons = "; ".join(f"{count} {reason}" for reason, count in left_out)
    return [*lines, f"Left out, calls and gradients: {reasons or 'none'}."]


def _steps(journal: Journal) -> str:
    from msprobe_hooks.dump.recording_paths import step_rank

    steps = sorted({step for dump in journal.dumps if (step := step_rank(dump).step) is not None})
    if len(steps) < 2:
        return f"step {steps[0]}" if steps else "no step"
    return f"{len(steps)} steps, {steps[0]} to {steps[-1]}"
