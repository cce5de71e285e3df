"""Series as items."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from msprobe_hooks.errors import MonitorError
from msprobe_hooks.escaping import id_name, numbered
from pytest_msprobe.extensions.monitor.series_names import item_name
from pytest_msprobe.results.outcomes import Breakdown
from pytest_msprobe.results.result import DirectionResult, failed_without_result
from pytest_msprobe.run.item import JudgedItem

if TYPE_CHECKING:
    import pytest

    from msprobe_hooks.extensions.monitor.series.reader import SeriesKey
    from pytest_msprobe.extensions.monitor.judging import SeriesJudge


class SeriesItem(JudgedItem):
    """One series of one rank: a tensor's statistic over the steps."""

    announces_warnings = False
    # Nothing here runs on a device, and numbers are read a few tensors at a time.
    is_isolated = False

    def __init__(self, *, key: SeriesKey, judge: SeriesJudge, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.key = key
        self._judge = judge

    def judge(self) -> DirectionResult:
        """Judge the series."""
        try:
            return replace(self._judge.judge(self.key), record=self.name)
        except MonitorError as error:
            return failed_without_result(self.name, Breakdown.RECORD, str(error))

    def mark_names(self) -> list[str]:
        """Return the task and the statistic."""
        return [self.key.task, self.key.statistic]

    def may_be_marked(self, name: str) -> bool:
        """Return whether it is the series' task or statistic."""
        return name in (self.key.task, self.key.statistic)


def series_items(file: pytest.File, judge: SeriesJudge) -> Iterator[SeriesItem]:
    """Yield an item for each series, in the order computed."""
    keys = list(judge.keys)
    for key, name in zip(keys, numbered(id_name(item_name(key)) for key in keys), strict=True):
        yield SeriesItem.from_parent(file, name=name, key=key, judge=judge)


def mark_lines(judges: Iterable[SeriesJudge]) -> dict[str, str]:
    """Return the marks that the items carry, each with its meaning."""
    keys = [key for judge in judges for key in judge.keys]
    return {key.statistic: "the statistic of a series" for key in keys} | {
        key.task: "the task of a series" for key in keys
    }
