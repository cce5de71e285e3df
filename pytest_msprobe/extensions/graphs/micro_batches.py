"""Micro steps: the passes, forward and backward, of which gradient accumulation makes one step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msprobe_hooks.dump.names import direction_of
from pytest_msprobe.extensions.graphs.nodes import Graph, Kind


def number_micro_steps(graph: Graph, recorded: Mapping[str, int]) -> None:
    """Give every node its micro step: as recorded, or else that of what it lies in.

    At the top, where nothing is recorded, a module's forward call after a backward one begins the next micro step.
    """
    top = graph.nodes[graph.root].children
    _follow(graph, {**dict(zip(top, _counted(graph, top), strict=True)), **recorded})


def _counted(graph: Graph, top: Iterable[str]) -> Iterable[int]:
    step, is_backward = 0, False
    for name in top:
        if graph.nodes[name].kind is Kind.MODULE:
            direction = direction_of(name)
            if direction == "forward" and is_backward:
                step, is_backward = step + 1, False
            elif direction == "backward":
                is_backward = True
        yield step


def _follow(graph: Graph, known: Mapping[str, int]) -> None:
    waiting = [graph.root]
    while waiting:
        node = graph.nodes[waiting.pop()]
        node.micro_step = known.get(node.name, graph.nodes[node.parent].micro_step if node.parent else 0)
        waiting += node.children
