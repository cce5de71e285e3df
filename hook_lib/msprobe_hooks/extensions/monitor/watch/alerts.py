"""Rules held against every series while a training runs."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msprobe_hooks.extensions.monitor.rules import Detector, make_rule
from msprobe_hooks.extensions.monitor.series.anomalies import Alert
from msprobe_hooks.extensions.monitor.series.tables import Row, Watched

_log = logging.getLogger("msprobe_hooks")

# Extrema and shares jump for good reasons; msprobe 26.x judges these two as well.
_JUDGED = ("norm", "mean")


class Alarm:
    """Feeds norms and means, or where neither is measured all statistics, to rules of their own; the first speaks."""

    def __init__(self, rules: Sequence[tuple[str, Mapping[str, Any]]], statistics: Sequence[str]) -> None:
        """Make the rules. Raises ConfigError for one that is unknown or has wrong limits."""
        self._rules = [(name, make_rule(name, limits)) for name, limits in rules]
        judged = [name for name in statistics if name in _JUDGED] or statistics
        self._statistics = [(place, name) for place, name in enumerate(statistics) if name in judged]
        self._detectors: dict[tuple[Watched, str], list[tuple[str, Detector]]] = {}

    def feed(self, rows: Iterable[Row]) -> list[Alert]:
        """Return what is wrong with the rows of a step, and log it."""
        alerts = [alert for place, row in enumerate(rows) for alert in self._judged(place, row)] if self._rules else []
        for alert in alerts:
            _log.warning("%s", alert)
        return alerts

    def _judged(self, place: int, row: Row) -> Iterable[Alert]:
        for column, statistic in self._statistics:
            series = (row.watched, statistic)
            detectors = self._detectors.get(series)
            if detectors is None:
                detectors = self._detectors[series] = [(name, rule.detector()) for name, rule in self._rules]
            found = [(name, detector.feed(row.values[column])) for name, detector in detectors]
            yield from [Alert(row, place, statistic, name, reason) for name, reason in found if reason][:1]
