"""What a failing record opens to, and how much of it a page holds."""

from __future__ import annotations

import heapq
import math
from typing import Any

import msgspec

from pytest_msprobe.reports.failure_text import described
from pytest_msprobe.reports.pages.write_page import page_number
from pytest_msprobe.results.circumstances import InputStatistics, called_at, inputs_of
from pytest_msprobe.results.error_map import ErrorMap
from pytest_msprobe.results.result import DirectionResult, OutputResult, as_json

# With the rows of 100 000 records a page stays below 20 MiB.
_MOST_BYTES = 9 * 2**20
_MOST_OUTPUTS, _LONGEST_TEXT = 32, 20_000


class Details:
    """Keeps what the worst records open to, within the bytes that a page may have."""

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self._left = most_bytes
        self._kept: list[tuple[float, int, bytes]] = []
        #: How many records fail and open to nothing.
        self.dropped = 0

    def add(self, row: int, result: DirectionResult) -> None:
        """Keep what a record opens to, in place of that of records that are farther from failing."""
        encoded = msgspec.json.encode(as_json(_details(result)))
        margin = math.inf if math.isnan(result.verdict.margin) else result.verdict.margin
        heapq.heappush(self._kept, (margin, -row, encoded))
        self._left -= len(encoded)
        while self._left < 0:
            self._left += len(heapq.heappop(self._kept)[2])
            self.dropped += 1

    def by_row(self) -> dict[int, msgspec.Raw]:
        """Return what is kept, by the row of its record."""
        return {-row: msgspec.Raw(encoded) for _, row, encoded in sorted(self._kept, key=lambda kept: -kept[1])}


def _details(result: DirectionResult) -> dict[str, Any]:
    return {
        "text": described(result)[:_LONGEST_TEXT],
        "notes": [note[:_LONGEST_TEXT] for note in result.notes],
        "outputs": [_output(output) for output in result.outputs[:_MOST_OUTPUTS]],
        "inputs": [_input(each) for each in inputs_of(result.extras)],
        "called": called_at(result.extras),
    }


def _output(output: OutputResult) -> dict[str, Any]:
    verdict = output.verdict
    return {
        "path": output.path,
        "dtype": output.target_dtype.removeprefix("torch."),
        "shape": list(output.shape),
        "outcome": verdict.outcome,
        "standard": verdict.standard,
        "reason": verdict.reason,
        "difference": output.difference,
        "numbers": [
            [name, page_number(value), page_number(verdict.limits.get(name))] for name, value in verdict.metrics.items()
        ],
        "map": None if output.error_map is None else _map(output.error_map),
    }


def _map(found: ErrorMap) -> dict[str, Any]:
    return {**msgspec.to_builtins(found), "place": found.place}


def _input(each: InputStatistics) -> list[Any]:
    numbers = (each.least, each.greatest, each.mean, each.rms)
    dtype = each.dtype.removeprefix("torch.")
    return [each.path, dtype, list(each.shape), *map(page_number, numbers), each.not_finite]
