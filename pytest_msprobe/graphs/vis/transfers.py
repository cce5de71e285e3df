"""Who talked to whom: the partners, on other ranks, of a graph's nodes of communication."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from msprobe_hooks.dump.reader import Dump
from msprobe_hooks.dump.transfers import Communication, End, ends_of, is_communication, match_transfers
from msprobe_hooks.errors import RecordError
from pytest_msprobe.graphs.vis.database import Database
from pytest_msprobe.graphs.vis.picture import Place


class Conversations:
    """The communications of all ranks, gathered a rank at a time; they are few, and are matched when all are there."""

    def __init__(self, places: list[Place]) -> None:
        self._worlds: dict[int, set[int]] = defaultdict(set)
        for place in places:
            self._worlds[place.step].add(place.rank)
        self._steps: dict[int, dict[int, list[Communication]]] = defaultdict(dict)

    def add(self, place: Place, dump: Dump) -> None:
        """Take the communications of one rank of a step. What a record says of none is left out."""
        world = frozenset(self._worlds[place.step])
        if len(world) > 1:
            names = filter(is_communication, dump.records)
            self._steps[place.step][place.rank] = [
                Communication(place.rank, name, ends)
                for name in names
                if (ends := _ends(dump, name, place.rank, world))
            ]

    def write(self, database: Database) -> None:
        """Match them and note each node's partners, with what is told of these."""
        for step, ranks in self._steps.items():
            partners: dict[tuple[int, str], list[dict[str, Any]]] = defaultdict(list)
            for members in match_transfers(ranks.values()).values():
                for record, end in members:
                    told = _partners(database, step, record, end, members)
                    if told["nodes_info"]:
                        partners[record.rank, record.name].append(told)
            for (rank, name), found in partners.items():
                database.join(Place(step, rank), name, found[0] if len(found) == 1 else found)


def _ends(dump: Dump, name: str, rank: int, world: frozenset[int]) -> tuple[End, ...]:
    try:
        return ends_of(dump.forward(name), rank, world)
    except (RecordError, ValueError):
        return ()


def _partners(
    database: Database, step: int, record: Communication, end: End, members: list[tuple[Communication, End]]
) -> dict[str, Any]:
    others = [(other, its) for other, its in members if other.rank != record.rank and _exchange(end, its)]
    sends = any(end.gives and its.takes for _, its in others)
    receives = any(end.takes and its.gives for _, its in others)
    nodes = {
        str(other.rank): [database.communications.get((Place(step, other.rank), other.name), "Nan"), other.name]
        for other, _ in others
    }
    kind = "send_receive" if sends is receives else "send" if sends else "receive"
    return {"communications_type": kind, "nodes_info": nodes}


def _exchange(one: End, other: End) -> bool:
    """Tell whether something goes from one end to the other, or nothing at all from any, as at a barrier."""
    if not (one.gives or one.takes):
        return True
    return (one.gives and other.takes) or (one.takes and other.gives)
