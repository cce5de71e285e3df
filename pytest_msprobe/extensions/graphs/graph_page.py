"""A run's graph as the data of a page, links between ranks' calls, and the graphs of compared runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from msprobe_hooks.dump.call_context import outside_frameworks
from msprobe_hooks.dump.communication.jsonl import find_partners, find_steps
from msprobe_hooks.dump.names import is_parameters_grad
from msprobe_hooks.dump.reader import Dump
from msprobe_hooks.dump.recording_paths import stages_of, step_rank
from msprobe_hooks.dump.schema import Leaf, TensorElement
from msprobe_hooks.errors import DumpError, RecordError
from msprobe_hooks.extensions.overflow.anomaly import (
    BUILT_IN,
    AnomalyKind,
    RecordIO,
    find_scene,
    is_ignored,
    read_record_io,
)
from msprobe_hooks.messages import counted
from pytest_msprobe.extensions.graphs.data_flow import Edge, Likeness, find_flow
from pytest_msprobe.extensions.graphs.nodes import Graph, Kind, Node, build_graph, pair_nodes
from pytest_msprobe.extensions.overflow.nonfinite_origins import RECEIVED, Analysis, analyse
from pytest_msprobe.reports.pages import CHECK, below, next_steps, page_number, write_page

if TYPE_CHECKING:
    from pytest_msprobe.modes.compare.dump_pair import DumpPair
    from pytest_msprobe.modes.compare.rows import ComparedCall


_KINDS = {Kind.MODULE: "m", Kind.API: "a", Kind.COLLECTION: "c"}
_LIKENESSES: tuple[Likeness, ...] = ("same", "reshaped", "summed")

#: A record, the number of another dump, and the record there.
Link = tuple[str, int, str]

#: How a scene is coloured, as a search for overflow judges it, and whether what is wrong begins there. A norm that
#: jumps is no error of itself.
_MARKS = {
    AnomalyKind.ARISES: ("fail", "culprit"),
    AnomalyKind.COMES_IN: ("fail", "culprit"),
    AnomalyKind.NAN_OF_INF: ("fail", "culprit"),
    AnomalyKind.OVERWRITTEN: ("fail", "culprit"),
    AnomalyKind.PASSES_ON: ("warn", "inherited"),
    AnomalyKind.VANISHES: ("warn", ""),
}
_STATISTICS = ("max", "min", "mean", "norm")


class Mark(NamedTuple):
    """Verdict on a node: ``outcome`` (pass, warn, fail, skip) colours it, ``cause`` says whether it began there.

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
    own_marks = [marks.get(node.name, _UNMARKED) for node in nodes]
    places: dict[str, int] = {}
    return {
        "names": [node.name for node in nodes],
        "parents": [run.order[node.parent] if node.parent else -1 for node in nodes],
        "kinds": "".join(_KINDS[node.kind] for node in nodes),
        # A letter each: there are many nodes.
        "outcomes": "".join(mark.outcome[:1] or " " for mark in own_marks),
        "causes": "".join(mark.cause[:1] or " " for mark in own_marks),
        "calls": [mark.call for mark in own_marks],
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


def communication_links(dumps: Sequence[Dump]) -> list[list[Link]]:
    """Return, for each dump, the partner of each communication record on the next rank that has one.

    One each: following them visits every rank that took part, and links of all ranks with all would outnumber the rest.
    """
    places = {dump.path: place for place, dump in enumerate(dumps)}
    links: list[list[Link]] = [[] for _ in dumps]
    for step in find_steps(dumps):
        for (rank, name), partners in find_partners(step).items():
            for partner in partners:
                other = _next(rank, partner.records)
                links[places[step.ranks[rank].path]].append(
                    (name, places[step.ranks[other].path], partner.records[other])
                )
    return links


def _next(rank: int, others: Mapping[int, str]) -> int:
    return min(others, key=lambda other: (other < rank, other))


def write_single_page(path: Path, dumps: Sequence[Dump], *, title: str) -> None:
    """Write the page. Raises DumpError where a dump has no graph, OSError where the disk refuses."""
    calls: list[Any] = []
    runs = [read_run(dump) for dump in dumps]
    searches = {
        dump.path: (analysis, rank)
        for step in find_steps(dumps)
        for analysis in [analyse(step, BUILT_IN)]
        for rank, dump in step.ranks.items()
    }
    marks = [_marks(dump, run, searches[dump.path], calls) for dump, run in zip(dumps, runs, strict=True)]
    stages = stages_of([dump.path for dump in dumps])
    drawings = [
        Drawing(_place(dump, stages[dump.path]), run, own_marks, links=links)
        for dump, run, own_marks, links in zip(dumps, runs, marks, communication_links(dumps), strict=True)
    ]
    nodes, edges = sum(len(run.order) for run in runs), sum(len(run.edges) for run in runs)
    data = {
        "title": _answer(drawings),
        "about": f"{title}: {nodes} modules and calls, {edges} values passed between them",
        "calls": calls,
        "graphs": drawn(drawings),
        "dumps": [below(Path.cwd(), dump.path) for dump in dumps],
        "commands": [CHECK, *next_steps()],
    }
    write_page(path, __package__, data, title="Recorded run", parts=("dagre", "graph"))


def _answer(drawings: Sequence[Drawing]) -> str:
    """Return how many calls inf or nan arises in, and the first of them."""
    arising = [
        (drawing.place, name)
        for drawing in drawings
        for name, mark in drawing.marks.items()
        if mark.cause == "culprit" and mark.outcome == "fail"
    ]
    if not arising:
        return "inf or nan arises in no call"
    place, name = arising[0]
    where = f", {place}" if len(drawings) > 1 else ""
    return f"inf or nan arises in {counted(len(arising), 'call')}, first {name}{where}"


def _place(dump: Dump, stage: str) -> str:
    place = step_rank(dump.path)
    words = dump.path.parent.name if place == (None, None) else str(place)
    return f"stage {stage}, {words}" if stage else words


def _marks(dump: Dump, run: Run, search: tuple[Analysis, int], calls: list[Any]) -> Mapping[str, Mark]:
    """Return the mark of each record, and add what the page says of it to ``calls``.

    ``search`` is what a search for overflow found in the step, and the dump's rank in it.
    """
    stacks = dump.surroundings.stacks
    marks: dict[str, Mark] = {}
    for name in run.order:
        if name not in dump.records or is_parameters_grad(name):
            continue
        outcome, cause, text, values = _judged(dump, name, *search)
        marks[name] = Mark(outcome, cause, len(calls))
        calls.append([text, values, "\n".join(outside_frameworks(stacks.of_call(name) or ()))])
    # Where a call in a module is wrong of itself, the module is not.
    for name in [name for name, mark in marks.items() if mark.cause == "culprit"]:
        for module in run.graph.path(name)[:-1]:
            if module in marks:
                marks[module] = marks[module]._replace(cause="inherited")
    return marks


def _judged(dump: Dump, name: str, analysis: Analysis, rank: int) -> tuple[str, str, str, list[Any]]:
    """Return the outcome and cause of a record, what is wrong with it in words, and its values."""
    try:
        traffic = read_record_io(dump, name)
    except RecordError as error:
        return "skip", "", str(error), []
    finding, values = analysis.beginnings[rank].get(name) or find_scene(traffic), list(_values(traffic))
    if finding is None or finding.scene not in _MARKS or is_ignored(finding, name, BUILT_IN):
        return "", "", "", values
    source = analysis.received.get((rank, name))
    if source is not None:
        return "warn", "inherited", f"{RECEIVED}: rank {source.rank}, {source.name}", values
    return *_MARKS[finding.scene], finding.scene.words, values


def _values(traffic: RecordIO) -> Iterator[list[Any]]:
    """Yield place, what it is, and the four statistics of each value."""
    for place in (*traffic.inputs, *traffic.outputs):
        leaf: Leaf = place.leaf
        if isinstance(leaf, TensorElement):
            yield [
                place.path, f"{leaf.dtype.removeprefix('torch.')} {list(leaf.shape)}",
                *(page_number(getattr(leaf, name)) for name in _STATISTICS),
            ]  # fmt: skip
        else:
            yield [place.path, f"{leaf.type} {leaf.value}"]


class PairGraph:
    """The graphs of a pair of dumps, by the pair's number; compared calls are added as they are read."""

    def __init__(self, pair: int, target: Run, golden: Run, links: Sequence[Link] = ()) -> None:
        self.pair = pair
        self._target, self._golden, self._links = target, golden, links
        self._marks: dict[str, Mark] = {}
        self._golden_marks: dict[str, Mark] = {}
        self._partners: dict[str, str] = {}

    def add(self, place: int, call: ComparedCall) -> None:
        """Colour what a call was compared as; ``place`` is its place among all calls of the page."""
        mark = Mark(call.outcome, call.cause, place)
        if call.target is not None:
            self._marks[call.target] = mark
        if call.golden is not None:
            self._golden_marks[call.golden] = mark
        if call.target is not None and call.golden is not None:
            self._partners[call.target] = call.golden

    def drawing(self, place: str) -> Drawing:
        """Return what is drawn, under the name of the pair."""
        partners = pair_nodes(self._target.graph, self._golden.graph, self._partners)
        return Drawing(place, self._target, self._marks, self._golden, self._golden_marks, partners, links=self._links)


class PairGraphs:
    """The graphs of some pairs of dumps; those of others are left out."""

    def __init__(self, graphs: Sequence[PairGraph]) -> None:
        self._graphs = {graph.pair: graph for graph in graphs}

    def add(self, place: int, call: ComparedCall) -> None:
        """Colour what a call was compared as; ``place`` is its place among all calls of the page."""
        if call.pair in self._graphs:
            self._graphs[call.pair].add(place, call)

    def data(self, pairs: Sequence[str]) -> list[dict[str, Any]]:
        """Return what the page's scripts draw; ``pairs`` names the compared dumps."""
        return drawn([graph.drawing(pairs[graph.pair]) for graph in self._graphs.values()])


def read_graphs(pairs: Sequence[DumpPair], *, are_required: bool = False) -> PairGraphs:
    """Return the graphs of those pairs whose dumps say in which modules calls were made.

    Raises DumpError where one does not and the graphs are required.
    """
    runs: list[tuple[DumpPair, Run, Run]] = []
    for pair in pairs:
        try:
            runs.append((pair, read_run(pair.target), read_run(pair.golden)))
        except DumpError:
            if are_required:
                raise
            # The table needs no graph, and a damaged file next to a dump is no verdict on it.
            continue
    links = communication_links([pair.target for pair, _, _ in runs])
    return PairGraphs(
        [
            PairGraph(pair.index, target, golden, linked)
            for (pair, target, golden), linked in zip(runs, links, strict=True)
        ]
    )
