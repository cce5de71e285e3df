"""How the values of watched series move from run to run, from their journals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from pytest_msprobe.journal.journal import Journal
from pytest_msprobe.results.value_range import Spread, spread_of

#: How many of the series that moved most are shown where none are named.
MOST_MOVED: Final = 12
# Of others, as of a mean near 0, relative differences mean little.
_MAGNITUDES = ("norm", "rms")


@dataclass(frozen=True, slots=True)
class SeriesTrend:
    """One series of a rank, ``item`` by the name of its item: its values in each run, None where it was not judged."""

    item: str
    rank: int
    spreads: tuple[Spread | None, ...]

    def name(self, has_several_ranks: bool) -> str:
        """Return what the series is called, among those of several ranks or of one."""
        return f"rank {self.rank}, {self.item}" if has_several_ranks else self.item

    @property
    def moved(self) -> float:
        """How far the medians of the runs are apart, relative to the largest; 0 to 2."""
        medians = [spread.median for spread in self.spreads if spread is not None]
        largest = max(map(abs, medians), default=0.0)
        return (max(medians) - min(medians)) / largest if largest else 0.0


def ranks_of_series(journals: Sequence[Journal]) -> set[int]:
    """Return the ranks that series of any run are of."""
    results = (entry.result for journal in journals for entry in journal.entries.values())
    return {spread.rank for result in results if (spread := spread_of(result.extras)) is not None}


def series_trends(journals: Sequence[Journal], patterns: Sequence[str] = ()) -> list[SeriesTrend]:
    """Return the series of runs in the order of their dates, those that moved most first.

    They are those whose name fits a pattern such as ``grad_reduced/layers.0.*``, or without patterns the `MOST_MOVED`
    magnitudes that moved at all; of several that are alike the first.
    """
    found: list[dict[tuple[str, int], Spread]] = []
    for journal in journals:
        results = (entry.result for entry in journal.entries.values())
        spreads = ((result.record, spread_of(result.extras)) for result in results)
        found.append({(item, spread.rank): spread for item, spread in spreads if spread is not None})
    keys = dict.fromkeys(key for spreads_of_run in found for key in spreads_of_run)
    trends = [SeriesTrend(*key, tuple(each.get(key) for each in found)) for key in keys]
    trends.sort(key=lambda trend: -trend.moved)
    if patterns:
        return [trend for trend in trends if any(fnmatchcase(trend.item, pattern) for pattern in patterns)]
    # Where nothing is reduced or clipped a gradient is the same before and after.
    distinct: dict[tuple[Spread | None, ...], SeriesTrend] = {}
    for trend in trends:
        if trend.moved and trend.item.rpartition("/")[2] in _MAGNITUDES:
            distinct.setdefault(trend.spreads, trend)
    return list(distinct.values())[:MOST_MOVED]
