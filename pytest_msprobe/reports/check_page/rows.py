"""Rows of a check's page: a column for each common field, details of failures, and what the page is made of."""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import msgspec

from pytest_msprobe.reports.failed_apis import api_and_direction
from pytest_msprobe.reports.github import described
from pytest_msprobe.reports.history import NO_KEY, ItemKey
from pytest_msprobe.reports.pages import page_number
from pytest_msprobe.reports.text import clipped
from pytest_msprobe.results.error_map import ErrorMap
from pytest_msprobe.results.result import (
    LITTLE_JUDGED,
    NARROW_SUMS,
    SAVED,
    DirectionResult,
    InputStatistics,
    OutputResult,
    Start,
    as_json,
    called_at,
    inputs_of,
    left_open_of,
)

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
        return {-row: msgspec.Raw(encoded) for _, row, encoded in sorted(self._kept, key=lambda entry: -entry[1])}


def _details(result: DirectionResult) -> dict[str, Any]:
    return {
        "text": described(result)[:_LONGEST_TEXT],
        "notes": [note[:_LONGEST_TEXT] for note in result.notes],
        "outputs": [_output(output) for output in result.outputs[:_MOST_OUTPUTS]],
        "inputs": [_input(statistics) for statistics in inputs_of(result.extras)],
        "called": called_at(result.extras),
        "saved": next((case["folder"] for case in result.extras.get(SAVED, ())), ""),
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


def _map(error_map: ErrorMap) -> dict[str, Any]:
    return {**msgspec.to_builtins(error_map), "place": error_map.place}


def _input(statistics: InputStatistics) -> list[Any]:
    numbers = (statistics.least, statistics.greatest, statistics.mean, statistics.rms)
    dtype = statistics.dtype.removeprefix("torch.")
    return [statistics.path, dtype, list(statistics.shape), *map(page_number, numbers), statistics.not_finite]


class AboutRun(NamedTuple):
    """Sentences of the page on a run of some kind, and the title of the command that runs a record again."""

    notes: Sequence[str] = ()
    rerun_title: str = "Run this record alone"


#: Of a run that judges the records of a dump there is no more to say.
OF_DUMPS: Final = AboutRun()


@dataclass(frozen=True, slots=True)
class RunFacts:
    """One run: when it began, what it ran on, how it judged, and what is said of it by its kind."""

    name: str
    began: str
    starts: Sequence[Start]
    settings: Mapping[str, str]
    about: AboutRun = OF_DUMPS


@dataclass(frozen=True, slots=True)
class CheckedRecord:
    """One record of a run; ``run`` is the place of its run among all of them.

    ``dump`` names its dump among the run's and is empty where there is one. ``rerun`` are the words of the
    command that runs a record again, with ``<dump>::<record>`` in place of this one's, which is ``chosen``. ``key`` is
    what it has in common with itself in another run.
    """

    run: int
    result: DirectionResult
    dump: str = ""
    card: str = ""
    rerun: tuple[str, ...] = field(default=(), repr=False)
    chosen: str = ""
    key: ItemKey = NO_KEY


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
    remarks = filter(None, (*map(result.extras.get, (LITTLE_JUDGED, NARROW_SUMS)), left_open_of(result.extras)))
    return clipped("; ".join(map(str, remarks)), _REASON_LENGTH)
