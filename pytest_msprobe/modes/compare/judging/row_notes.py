"""What the rows of a call say for the summary of a run: values that were left out, or compared in part."""

from __future__ import annotations

from collections.abc import Iterable

from pytest_msprobe.modes.compare.judging.unread_values import IN_SUMMARY
from pytest_msprobe.modes.compare.measure.own_metrics import PROBLEM
from pytest_msprobe.modes.compare.measure.transformed_values import BY_NORM, NOT_COMPARED
from pytest_msprobe.modes.compare.rows import Row

# One line for each in a summary: what was done to which value is in its row.
_OF_TRANSFORMATIONS = (NOT_COMPARED, BY_NORM)


def row_notes(rows: Iterable[Row]) -> list[tuple[str, str]]:
    """Return notes on values, in the words that follow their number, and the places of the values."""
    return [(note, row.place) for row in rows for text in row.messages if (note := _note(text))]


def _note(text: str) -> str:
    if text in IN_SUMMARY:
        return f"not compared ({IN_SUMMARY[text]})"
    if text.startswith(PROBLEM):
        return f"without metric {text.removeprefix(PROBLEM)}"
    return next((beginning.removesuffix(": ") for beginning in _OF_TRANSFORMATIONS if text.startswith(beginning)), "")
