"""Levels of nodes: precision as the number and the colour of msprobe 26, and anomalies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

from msprobe_hooks.dump.reader import Dump
from msprobe_hooks.errors import RecordError
from msprobe_hooks.extensions.overflow.anomalies.anomaly import (
    BUILT_IN,
    IgnoreRules,
    find_scene,
    is_ignored,
    is_judgeable,
    read_record_io,
)
from msprobe_hooks.extensions.overflow.anomalies.anomaly import Level as AnomalyLevel
from pytest_msprobe.extensions.graphs.nodes import Graph, Kind

Outcome = Literal["pass", "warn", "fail", "skip"]

#: The index of an outcome; what nothing was measured of has none.
INDEX: Mapping[Outcome, float] = {"pass": 0.0, "warn": 0.5, "fail": 1.0}


class Level(NamedTuple):
    """A class of precision: its colour, the indices from ``low`` up to ``high``, and what it is called."""

    colour: str
    low: float
    high: float
    name: str
    description: str


#: msprobe's classes. It ends the last one at 1, the index of an error, and its viewer then does not find errors.
LEVELS = (
    Level("#FFFCF3", 0.0, 0.3, "pass", "the call agrees with the golden run"),
    Level("#FFDC7F", 0.3, 0.6, "warning", "the difference exceeds the warning limit"),
    Level("#FF704D", 0.6, 1.1, "error", "the difference exceeds the limit"),
)
UNMATCHED = ("#C7C7C7", "the golden run has no such call")


def precision_indices(graph: Graph, outcomes: Mapping[str, Outcome]) -> dict[str, float]:
    """Return the index of each node that has one: that of its record's outcome, of a collection its worst call's."""
    indices = {name: INDEX[outcome] for name, outcome in outcomes.items() if outcome in INDEX}
    for node in graph.nodes.values():
        index = worst(indices, node.children) if node.kind is Kind.COLLECTION else None
        if index is not None:
            indices[node.name] = index
    return indices


def worst(indices: Mapping[str, float], names: Iterable[str]) -> float | None:
    """Return the worst index among some nodes, None where none has one."""
    return max((indices[name] for name in names if name in indices), default=None)


def overflow_level(dump: Dump, record: str, rules: IgnoreRules = BUILT_IN) -> AnomalyLevel | None:
    """Return the level of what a record shows; None where nothing is wrong or a rule ignores it.

    A record that is malformed, has no direction or is not there has none.
    """
    if record not in dump.records or not is_judgeable(record):
        return None
    try:
        finding = find_scene(read_record_io(dump, record))
    except RecordError:
        return None
    return None if finding is None or is_ignored(finding, record, rules) else finding.scene.level
