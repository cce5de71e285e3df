"""What the rows of a call say for the summary of a run: values that were left out, or compared in part."""

from __future__ import annotations

from collections.abc import Iterable

from pytest_msprobe.modes.compare.judging.unread_values import IN_SUMMARY
from pytest_msprobe.modes.compare.measure.own_metrics import PROBLEM
from pytest_msprobe.modes.compare.measure.transformed_values import BY_NORM, NOT_COMPARED
from pytest_msprobe.modes.compare.rows import Row

_SHOWN_AS_THEY_ARE = (NOT_COMPARED, BY_NORM, PROBLEM)


def row_notes(rows: Iterable[Row]) -> list[tuple[str, str]]:
    """Return notes on values, in the words that follow their number, and the places of the values."""
    return [(note, row.place) for row in rows for text in row.messages if (note := _note(text))]


def _note(text: str) -> str:
    if text in IN_SUMMARY:
        return f"not compared ({IN_SUMMARY[text]})"
    for beginning in _SHOWN_AS_THEY_ARE:
        if text.startswith(beginning):
            said, what = beginning.rstrip(": "), text.removeprefix(beginning)
            return f"{said} {what}" if beginning == PROBLEM else f"{said} ({what})"
    return ""
