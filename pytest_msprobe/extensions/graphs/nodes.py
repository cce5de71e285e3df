"""The tree of a run's modules and calls, which every picture of it is drawn from, and pairs of two runs' nodes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum


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
    partnered = set(partners.values())
    for node in target.nodes.values():
        if node.name in partners or node.name in records:
            continue
        other = _around(golden, partners, node.children) if node.kind is Kind.COLLECTION else node.name
        candidate = golden.nodes.get(other)
        if candidate is not None and candidate.kind is node.kind and other not in partnered:
            partners[node.name] = other
            partnered.add(other)
    return partners


def _around(golden: Graph, partners: Mapping[str, str], children: Iterable[str]) -> str:
    return next((golden.nodes[partners[name]].parent for name in children if name in partners), "")


def follow_micro_steps(target: Graph, golden: Graph, partners: Mapping[str, str]) -> None:
    """Set on golden nodes the micro steps of their partners, so that both are seen together."""
    for name, other in partners.items():
        golden.nodes[other].micro_step = target.nodes[name].micro_step
