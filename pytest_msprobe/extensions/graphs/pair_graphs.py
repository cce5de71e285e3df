"""The graphs of compared runs on the page of a comparison, coloured by what came of each call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from msprobe_hooks.errors import DumpError
from pytest_msprobe.extensions.graphs.nodes import pair_nodes
from pytest_msprobe.extensions.graphs.page.payload import Drawing, Link, Mark, Run, communication_links, drawn, read_run

if TYPE_CHECKING:
    from pytest_msprobe.modes.compare.dump_pair import DumpPair
    from pytest_msprobe.modes.compare.rows import ComparedCall


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
