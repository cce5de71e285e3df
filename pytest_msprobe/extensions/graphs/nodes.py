"""The tree of a run's modules and calls, which every picture of it is drawn from, pairs of two, levels of nodes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Literal, NamedTuple

from msprobe_hooks.dump.reader import Dump
from msprobe_hooks.errors import RecordError
from msprobe_hooks.extensions.overflow.anomaly import (
    BUILT_IN,
    IgnoreRules,
    find_scene,
    is_ignored,
    is_judgeable,
    read_record_io,
)
from msprobe_hooks.extensions.overflow.anomaly import Level as AnomalyLevel

Outcome = Literal["pass", "warn", "fail", "skip"]

#: The index of an outcome; what nothing was measured of has none.
INDEX: Mapping[Outcome, float] = {"pass": 0.0, "warn": 0.5, "fail": 1.0}
UNMATCHED = ("#C7C7C7", "the golden run has no such call")


class Kind(IntEnum):
    """Kind of a node; the numbers are those of msprobe's files."""

    MODULE = 0
    API = 1
    #: A run of API calls that no module made.
    COLLECTION = 9


@dataclass(slots=True)
class Node:
    """A call of a module or of an API, by its record's name; ``children`` are in the order in which they began.

    ``parent`` is empty for the root. ``micro_step`` counts the forward and backward passes of a step.
    """

    name: str
    kind: Kind
    parent: str = ""
    children: list[str] = field(default_factory=list)
    micro_step: int = 0


@dataclass(frozen=True, slots=True)
class Graph:
    """A tree of nodes by name, the root first and the others in the order in which they began."""

    root: str
    nodes: Mapping[str, Node]

    @property
    def micro_steps(self) -> int:
        """Return how many micro steps there are."""
        return max(node.micro_step for node in self.nodes.values()) + 1

    def path(self, name: str) -> list[str]:
        """Return the names from the root to a node, both included."""
        names = []
        while name:
            names.append(name)
            name = self.nodes[name].parent
        return names[::-1]

    def children_first(self) -> Iterator[Node]:
        """Yield every node after its children."""
        waiting = [(self.nodes[self.root], False)]
        while waiting:
            node, is_open = waiting.pop()
            if is_open or not node.children:
                yield node
            else:
                waiting.append((node, True))
                waiting += [(self.nodes[name], False) for name in reversed(node.children)]


def pair_nodes(target: Graph, golden: Graph, records: Mapping[str, str | None]) -> dict[str, str]:
    """Return the golden node of each node of the target that has one.

    ``records`` are the partners that records found, None for none. A collection goes where its first matched call went,
    and what has no record, as the root, to the node of its name.
    """
    partners = {
        name: other for name, other in records.items() if other and other in golden.nodes and name in target.nodes
    }
    partners[target.root] = golden.root
    taken = set(partners.values())
    for node in target.nodes.values():
        if node.name in partners or node.name in records:
            continue
        other = _around(golden, partners, node.children) if node.kind is Kind.COLLECTION else node.name
        found = golden.nodes.get(other)
        if found is not None and found.kind is node.kind and other not in taken:
            partners[node.name] = other
            taken.add(other)
    return partners


def _around(golden: Graph, partners: Mapping[str, str], children: Iterable[str]) -> str:
    return next((golden.nodes[partners[name]].parent for name in children if name in partners), "")


def follow_micro_steps(target: Graph, golden: Graph, partners: Mapping[str, str]) -> None:
    """Set on golden nodes the micro steps of their partners, so that both are seen together."""
    for name, other in partners.items():
        golden.nodes[other].micro_step = target.nodes[name].micro_step


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


def precision_indices(graph: Graph, outcomes: Mapping[str, Outcome]) -> dict[str, float]:
    """Return the index of each node that has one: that of its record's outcome, of a collection its worst call's."""
    found = {name: INDEX[outcome] for name, outcome in outcomes.items() if outcome in INDEX}
    for node in graph.nodes.values():
        index = worst(found, node.children) if node.kind is Kind.COLLECTION else None
        if index is not None:
            found[node.name] = index
    return found


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
