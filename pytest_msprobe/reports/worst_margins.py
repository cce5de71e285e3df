"""Worst margin of each direction of an API, when one is worse than another, and runs or cards side by side."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import pytest

from msprobe_hooks.dump.names import parse_api_name
from pytest_msprobe.reports.junit import card_of_properties
from pytest_msprobe.reports.report_payload import results_in
from pytest_msprobe.reports.text import aligned, clipped, one_line
from pytest_msprobe.results.result import DirectionResult, from_plain

#: A margin that grew or shrank by this factor has moved: inputs are drawn from the same seed, so that only what
#: computes can move it.
FACTOR: Final = 1.25
#: Margins below this share of a limit are far from any verdict; how they move there is not reported.
LEAST: Final = 0.01

#: Before a margin that is an upper bound.
AT_MOST: Final = "<= "

_SEVERITY = {"pass": 0, "warn": 1, "fail": 2}


@dataclass(frozen=True, slots=True)
class Worst:
    """The record of an API that came closest to its limits in a run, or went farthest beyond, of so many judged.

    ``at_most``: the margin is an upper bound, measured against a lower limit than the one that would decide.
    """

    record: str
    outcome: str
    margin: float
    severity: int
    judged: int
    at_most: bool = False

    def __str__(self) -> str:
        shown = f"{AT_MOST if self.at_most else ''}{self.margin:.3g}"
        return shown if self.outcome == "pass" else f"{shown} {self.outcome}"


def worst_by_api(results: Iterable[DirectionResult]) -> dict[str, Worst]:
    """Return the worst of what was judged, by API and direction; another record's is by its own name."""
    worst: dict[str, Worst] = {}
    for result in results:
        add_worst(worst, result)
    return worst


def only(result: DirectionResult) -> Worst:
    """Return one judged record, as if it were the only one of its API."""
    verdict = result.verdict
    severity = _SEVERITY[verdict.outcome]
    return Worst(result.record, result.outcome, verdict.margin, severity, 1, verdict.at_most)


def add_worst(worst: dict[str, Worst], result: DirectionResult) -> None:
    """Count one more result, unless it was skipped."""
    verdict = result.verdict
    if verdict.outcome == "skip":
        return
    name = _api(result.record)
    earlier = worst.get(name)
    judged = 1 if earlier is None else earlier.judged + 1
    severity = _SEVERITY[verdict.outcome]
    own = Worst(result.record, result.outcome, verdict.margin, severity, judged, verdict.at_most)
    if earlier is None or (own.severity, own.margin) > (earlier.severity, earlier.margin):
        worst[name] = own
    else:
        worst[name] = replace(earlier, judged=judged)


def is_worse(one: Worst, other: Worst) -> bool:
    """Return whether one is worse than the other by more than noise.

    A bound is not known to be worse than a margin that was measured; two bounds are measured against limits alike.
    """
    if one.severity != other.severity:
        return one.severity > other.severity
    if one.at_most and not other.at_most:
        return False
    return one.margin >= LEAST and one.margin > FACTOR * other.margin


def _api(record: str) -> str:
    """Return what records of one API share: it and the direction; another record's own name."""
    try:
        name = parse_api_name(record)
    except ValueError:
        return record
    return f"{name.qualified_api} {name.direction}"


@dataclass(frozen=True, slots=True)
class Row:
    """One direction of an API: its worst record in each column, None where none was judged."""

    name: str
    worst: tuple[Worst | None, ...]

    @property
    def is_alike(self) -> bool:
        """Return whether it came to the same in all columns, but for noise."""
        return _are_alike(self.worst)

    @property
    def odd(self) -> int | None:
        """The one column that is unlike the others, which are alike; None where there is none such."""
        if len(self.worst) < 3 or self.is_alike:
            return None
        places = range(len(self.worst))
        odd = [place for place in places if _are_alike(self.worst[:place] + self.worst[place + 1 :])]
        return odd[0] if len(odd) == 1 else None

    @property
    def rank(self) -> tuple[bool, int, float]:
        """Return what rows are ordered by: those that are not alike, then those that failed, then by margin."""
        present = [worst for worst in self.worst if worst is not None]
        severity, margin = max(((worst.severity, worst.margin) for worst in present), default=(0, 0.0))
        return self.is_alike, -severity, -margin


def side_by_side(columns: Sequence[Mapping[str, Worst]]) -> list[Row]:
    """Return a row for each API that any column has, those that are not alike first."""
    names = dict.fromkeys(name for column in columns for name in column)
    rows = (Row(name, tuple(column.get(name) for column in columns)) for name in names)
    return sorted(rows, key=lambda row: row.rank)


def odd_columns(rows: Sequence[Row]) -> Counter[int]:
    """Return by how many rows each column is unlike the others, the most first."""
    return Counter(row.odd for row in rows if row.odd is not None)


def _are_alike(worst: Sequence[Worst | None]) -> bool:
    present = [one for one in worst if one is not None]
    if not present:
        return True
    least = min(present, key=lambda one: (one.severity, one.margin))
    return len(present) == len(worst) and not any(is_worse(one, least) for one in present)


_ROWS_SHOWN = 20
_NAME_LENGTH = 60


class CardsReport:
    """Shows which card differs from the others, and in what."""

    def __init__(self) -> None:
        self._worst: defaultdict[str, dict[str, Worst]] = defaultdict(dict)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count what came of one record on one card."""
        for plain in results_in(report):
            add_worst(self._worst[card_of_properties(report.user_properties)], from_plain(plain))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Write the table where there are several cards."""
        if len(self._worst) > 1:
            terminalreporter.section("msprobe cards")
            for line in lines(dict(sorted(self._worst.items()))):
                terminalreporter.line(one_line(line))


def lines(cards: Mapping[str, Mapping[str, Worst]]) -> Iterator[str]:
    """Yield which card differs, and the APIs that came out otherwise on some card than on others."""
    rows = side_by_side(list(cards.values()))
    unlike = [row for row in rows if not row.is_alike]
    yield from _verdict(list(cards), rows, len(unlike))
    if unlike:
        table = [["error / allowed, by card", *cards], *map(_cells, unlike[:_ROWS_SHOWN])]
        yield from aligned(table, range(1, 1 + len(cards)))
    if len(unlike) > _ROWS_SHOWN:
        yield f"and {len(unlike) - _ROWS_SHOWN} more"


def _verdict(cards: Sequence[str], rows: Sequence[Row], unlike: int) -> Iterator[str]:
    total = f"{len(rows)} {'API' if len(rows) == 1 else 'APIs'}"
    if not unlike:
        yield f"all {len(cards)} cards agree in {total}"
        return
    odd = odd_columns(rows)
    for place, count in odd.most_common():
        yield f"{cards[place]} differs from the others in {count} of {total}"
    if unlike > odd.total():
        several = unlike - odd.total()
        yield f"{'several cards differ' if len(cards) > 2 else 'the cards differ'} in {several} of {total}"


def _cells(row: Row) -> list[str]:
    return [clipped(row.name, _NAME_LENGTH), *("-" if worst is None else str(worst) for worst in row.worst)]
