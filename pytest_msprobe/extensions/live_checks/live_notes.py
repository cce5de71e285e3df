"""Notes on a check of a running training in the head of its page."""

from __future__ import annotations

from collections import Counter

from msprobe_hooks.dump.recording_paths import step_rank
from msprobe_hooks.messages import counted
from pytest_msprobe.journal import Journal
from pytest_msprobe.reports.check_page.rows import AboutRun


def about_run(journal: Journal) -> AboutRun | None:
    """Return what the page says of a live check: what runs one of its calls again is the training."""
    if journal.header.settings.get("mode") != "live":
        return None
    return AboutRun(_notes(journal), "Run the training again")


def _notes(journal: Journal) -> list[str]:
    """Return what a live check judged, and what it left out."""
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
    steps = sorted({step for dump in journal.dumps if (step := step_rank(dump).step) is not None})
    if len(steps) < 2:
        return f"step {steps[0]}" if steps else "no step"
    return f"{len(steps)} steps, {steps[0]} to {steps[-1]}"
