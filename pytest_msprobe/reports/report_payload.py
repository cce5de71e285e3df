"""This plugin's results in a report of pytest, as plain data.

``msprobe`` is what came of a judged item, ``msprobe_checks`` what came of the checks that a test of the user's own
made, under names that distinguish them from other tests' checks, and ``msprobe_command`` runs that test again.
``msprobe_unjudged`` are lines on what a test did not judge and has no check for.
"""

from __future__ import annotations

from typing import Any


def checks_in(report: Any) -> list[dict[str, Any]]:
    """Return what came of a test's checks; nothing of other reports."""
    checks: list[dict[str, Any]] = getattr(report, "msprobe_checks", [])
    return checks


def unjudged_in(report: Any) -> list[str]:
    """Return the lines on what a test did not judge and has no check for."""
    lines: list[str] = getattr(report, "msprobe_unjudged", [])
    return lines


def results_in(report: Any) -> list[dict[str, Any]]:
    """Return what came of a judged item, or of a test's checks."""
    own: dict[str, Any] | None = getattr(report, "msprobe", None)
    return checks_in(report) if own is None else [own]


def worker_of(report: Any) -> str:
    """Return the id of the xdist worker that sent a report, empty where none did.

    Other plugins may know something else as a report's ``node``.
    """
    return str(getattr(getattr(getattr(report, "node", None), "gateway", None), "id", ""))


def strip_results(report: Any) -> None:
    """Take all of it out of a report: pytest keeps the reports of all items to the end of a run."""
    carried = vars(report)
    carried.pop("msprobe", None)
    carried.pop("msprobe_checks", None)
