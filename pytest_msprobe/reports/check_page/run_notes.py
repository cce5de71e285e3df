"""Notes in the head of a page, on a run that judged something else than the records of a dump."""

from __future__ import annotations

import os
import shlex
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from msprobe_hooks.dump.paths import step_rank
from msprobe_hooks.messages import counted
from pytest_msprobe.journal.journal import Journal
from pytest_msprobe.journal.shards import WholeRun


def notes_of(run: WholeRun) -> list[str]:
    """Return the sentences on a run, by its kind."""
    notes = _NOTES.get(run.journal.header.settings.get("mode", ""))
    return [] if notes is None else notes(run.journal)


def _of_live(journal: Journal) -> list[str]:
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


def _of_monitor(journal: Journal) -> list[str]:
    """Return how to get the page with the curves of a monitored run."""
    folders = {str(Path(file).parent) for file in journal.header.dumps}
    if not folders:
        return []
    command = shlex.join(["pytest", f"--msprobe-monitor={os.path.commonpath(folders)}", "--msprobe-html=curves.html"])
    return [f"These are the tests of a monitored run. The page with its curves: {command}"]


_NOTES: Final[Mapping[str, Callable[[Journal], list[str]]]] = {"live": _of_live, "monitor": _of_monitor}
