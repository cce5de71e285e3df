"""A run's graph as the data that the scripts of ``reports/pages/graph`` draw."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple

from msprobe_hooks.dump.reader import Dump
from pytest_msprobe.extensions.graphs.building import build_graph
from pytest_msprobe.extensions.graphs.data_flow import Edge, Likeness, find_flow
from pytest_msprobe.extensions.graphs.nodes import Graph, Kind, Node

_KINDS = {Kind.MODULE: "m", Kind.API: "a", Kind.COLLECTION: "c"}
_LIKENESSES: tuple[Likeness, ...] = ("same", "reshaped", "summed")


class Mark(NamedTuple):
    """What came of a node: ``outcome`` (pass, warn, fail, skip) colours it, ``cause`` says whether it began there.

    ``call`` is its place among the calls of the page, -1 where there is none.
    """

    outcome: str = ""
    cause: str = ""
    call: int = -1


_UNMARKED = Mark()


@dataclass(frozen=True)
class Run:
    """One recorded run, ready to be drawn: its nodes by name, in the order of the drawing."""

    graph: Graph
    edges: Sequence[Edge]
    order: dict[str, int]


@dataclass(frozen=True)
class Drawing:
    """One graph of a page: a run, or two that were compared. ``place`` names it among the others.

    ``partners`` are the golden names by the target's. ``links`` are nodes of other graphs that belong to a node, as the
    other ends of a communication: the node, the number of the other graph, the node there.
    """

    place: str
    target: Run
    marks: Mapping[str, Mark]
    golden: Run | None = None
    golden_marks: Mapping[str, Mark] = field(default_factory=dict)
    partners: Mapping[str, str] = field(default_factory=dict)
    links: Sequence[tuple[str, int, str]] = ()


def read_run(dump: Dump) -> Run:
    """Return a dump's graph with its data flow. Raises DumpError where ``construct.json`` is missing or damaged."""
    graph = build_graph(dump, dump.surroundings)
    parents = {node.name: node.parent for node in graph.nodes.values()}
    order = {node.name: place for place, node in enumerate(_parents_first(graph))}
    return Run(graph, find_flow(dump, parents.get), order)


def drawn(drawings: Sequence[Drawing]) -> list[dict[str, Any]]:
    """Return what the scripts read as ``page.graphs``."""
    return [
        {
            "place": drawing.place,
            "target": _side(drawing.target, drawing.marks),
            "golden": None if drawing.golden is None else _side(drawing.golden, drawing.golden_marks),
            "partners": None if drawing.golden is None else _partners(drawing.target, drawing.golden, drawing.partners),
            "links": [
                [drawing.target.order[name], other, drawings[other].target.order[there]]
                for name, other, there in drawing.links
                if name in drawing.target.order and there in drawings[other].target.order
            ],
        }
        for drawing in drawings
    ]


def _side(run: Run, marks: Mapping[str, Mark]) -> dict[str, Any]:
    nodes = [run.graph.nodes[name] for name in run.order]
    found = [marks.get(node.name, _UNMARKED) for node in nodes]
    places: dict[str, int] = {}
    return {
        "names": [node.name for node in nodes],
        "parents": [run.order[node.parent] if node.parent else -1 for node in nodes],
        "kinds": "".join(_KINDS[node.kind] for node in nodes),
        # A letter each: there are many nodes.
        "outcomes": "".join(mark.outcome[:1] or " " for mark in found),
        "causes": "".join(mark.cause[:1] or " " for mark in found),
        "calls": [mark.call for mark in found],
        "edges": list(chain.from_iterable(_edges(run, places))),
        "places": list(places),
    }


def _edges(run: Run, places: dict[str, int]) -> Iterator[tuple[int, int, int, int, int]]:
    """Yield producer, its place, consumer, its place, and the likeness, 3 higher where it is uncertain."""
    for edge in run.edges:
        if edge.producer in run.order and edge.consumer in run.order:
            yield (
                run.order[edge.producer],
                places.setdefault(edge.output, len(places)),
                run.order[edge.consumer],
                places.setdefault(edge.input, len(places)),
                _LIKENESSES.index(edge.likeness) + (0 if edge.is_certain else len(_LIKENESSES)),
            )


def _partners(target: Run, golden: Run, partners: Mapping[str, str]) -> list[int]:
    return [golden.order.get(partners.get(name, ""), -1) for name in target.order]


def _parents_first(graph: Graph) -> Iterable[Node]:
    waiting = [graph.root]
    while waiting:
        node = graph.nodes[waiting.pop()]
        yield node
        waiting += reversed(node.children)
