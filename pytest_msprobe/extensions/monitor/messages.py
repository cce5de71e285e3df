"""What broke a rule, put into words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msprobe_hooks.extensions.monitor.series.anomalies import ALARMS_KEPT
from msprobe_hooks.extensions.monitor.series.reader import Series
from pytest_msprobe.extensions.monitor.alerts import Alarm

_NEIGHBOURS = 3


def story(series: Series, alarms: Sequence[Alarm]) -> str:
    """Return what happened first and the values around it; its first line is the summary."""
    first = alarms[0]
    return "\n".join([first_line(series, first), "", *_neighbourhood(series, first.step), *_later(alarms)])


def first_line(series: Series, alarm: Alarm) -> str:
    """Return the alarm as one line."""
    return f"{alarm.rule} at step {alarm.step}: {series.key.statistic} {alarm.reason}"


def _neighbourhood(series: Series, step: int) -> Iterator[str]:
    index = int(series.steps.searchsorted(step))
    around = slice(max(index - _NEIGHBOURS, 0), index + _NEIGHBOURS + 1)
    width = len(str(series.steps[around][-1]))
    for each, value in zip(series.steps[around].tolist(), series.values[around].tolist(), strict=True):
        yield f"  {'>' if each == step else ' '} step {each:>{width}}  {value:.6g}"


def _later(alarms: Sequence[Alarm]) -> Iterator[str]:
    if len(alarms) >= ALARMS_KEPT:
        yield f"{len(alarms) - 1} more alarms up to step {alarms[-1].step}; the search stopped there"
    elif len(alarms) > 1:
        several = f"{len(alarms) - 1} more alarms, the last" if len(alarms) > 2 else "another alarm"
        yield f"{several} at step {alarms[-1].step}"
