"""``--dist each``: cards that checked the same records, side by side."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import pytest

from pytest_msprobe.reports.junit_properties import card_of_properties
from pytest_msprobe.reports.report_payload import results_in
from pytest_msprobe.reports.text import aligned, clipped, one_line
from pytest_msprobe.reports.worst_margins import Row, Worst, add_worst, odd_columns, side_by_side
from pytest_msprobe.results.result import from_plain

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
