"""The records of a page, a column for each thing that all of them have: names are written once."""

from __future__ import annotations

from typing import Any

from pytest_msprobe.reports.check_page.details import Details
from pytest_msprobe.reports.check_page.model import CheckedRecord
from pytest_msprobe.reports.failed_apis import api_and_direction
from pytest_msprobe.reports.pages.write_page import page_number
from pytest_msprobe.reports.text import clipped
from pytest_msprobe.results.left_open import left_open_of
from pytest_msprobe.results.result import LITTLE_JUDGED, DirectionResult

#: What rows have as a place in a list of the page.
_NAMED = ("api", "direction", "dtype", "outcome", "standard", "metric", "reason", "card", "dump", "rerun", "chosen")
_REASON_LENGTH = 300


class Rows:
    """Takes records one by one; `plain` is what the page's scripts read."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._runs: list[int] = []
        self._margins: list[Any] = []
        self._at_most: list[int] = []
        self._seconds: list[float] = []
        self._columns: dict[str, list[int]] = {name: [] for name in _NAMED}
        self._words: dict[str, dict[Any, int]] = {name: {} for name in _NAMED}
        self._details = Details()

    def __len__(self) -> int:
        return len(self._names)

    def add(self, record: CheckedRecord) -> None:
        """Add one record."""
        result = record.result
        if result.verdict.outcome == "fail":
            self._details.add(len(self), result)
        api, direction = api_and_direction(result.record)
        fields = {
            "api": api,
            "direction": direction,
            "dtype": _dtype(result),
            "outcome": result.outcome,
            "standard": result.decided_by,
            "metric": deciding_metric(result),
            "reason": _reason(result),
            "card": record.card,
            "dump": record.dump,
            "rerun": record.rerun,
            # A record's own name stands in its row.
            "chosen": record.chosen.removesuffix(result.record),
        }
        for name, value in fields.items():
            words = self._words[name]
            self._columns[name].append(words.setdefault(value, len(words)))
        self._names.append(result.record)
        self._runs.append(record.run)
        if result.verdict.at_most:
            self._at_most.append(len(self._margins))
        self._margins.append(page_number(float(f"{result.verdict.margin:.4g}")))
        self._seconds.append(float(f"{result.seconds:.3g}"))

    def plain(self) -> dict[str, Any]:
        """Return all of it: columns, the words that they name, and what failing records open to, by row."""
        columns = {"name": self._names, "run": self._runs, "margin": self._margins, "seconds": self._seconds}
        return {
            "columns": columns | self._columns,
            "atMost": self._at_most,
            "words": {name: list(words) for name, words in self._words.items()},
            "details": {str(row): details for row, details in self._details.by_row().items()},
            "dropped": self._details.dropped,
        }


def deciding_metric(result: DirectionResult) -> str:
    """Return the name of the number that came closest to its limit, or went farthest beyond; empty if there is none."""
    verdict = result.verdict
    shares = {
        name: value / limit if limit > 0 else value
        for name, value in verdict.metrics.items()
        if (limit := verdict.limits.get(name)) is not None
    }
    return max(shares, key=lambda name: shares[name], default="")


def _dtype(result: DirectionResult) -> str:
    output = result.deciding or next(iter(result.outputs), None)
    return "" if output is None else output.target_dtype.removeprefix("torch.")


def _reason(result: DirectionResult) -> str:
    """Return why a record fails, warns or has no verdict, or what its pass leaves unjudged, in one line."""
    if result.skip is not None:
        return str(result.skip)
    if result.outcome != "pass":
        return clipped(result.reason.partition("\n")[0], _REASON_LENGTH)
    said = filter(None, (result.extras.get(LITTLE_JUDGED), left_open_of(result.extras)))
    return clipped("; ".join(map(str, said)), _REASON_LENGTH)
