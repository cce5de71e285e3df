"""Which node of one run's graph is which of another's, from the partners of their records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pytest_msprobe.extensions.graphs.nodes import Graph, Kind


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
    """Give golden nodes the micro steps of their partners, so that both are seen together."""
    for name, other in partners.items():
        golden.nodes[other].micro_step = target.nodes[name].micro_step
