"""Who talked to whom: the partners, on other ranks, of a graph's nodes of communication."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from msprobe_hooks.dump.communication.calls import Call, Partners, match_partners, read_calls
from msprobe_hooks.dump.reader import Dump
from pytest_msprobe.extensions.graphs.vis.database import Database
from pytest_msprobe.extensions.graphs.vis.model import Place


class Conversations:
    """The communications of all ranks, gathered a rank at a time; they are few, and are matched when all are there."""

    def __init__(self, places: list[Place]) -> None:
        self._worlds: dict[int, set[int]] = defaultdict(set)
        for place in places:
            self._worlds[place.step].add(place.rank)
        self._steps: dict[int, list[list[Call]]] = defaultdict(list)

    def add(self, place: Place, dump: Dump) -> None:
        """Take the communications of one rank of a step. What a record says of none is left out."""
        world = frozenset(self._worlds[place.step])
        if len(world) > 1:
            self._steps[place.step].append(read_calls(dump, place.rank, world).calls)

    def write(self, database: Database) -> None:
        """Match them and note each node's partners, with what is known of these."""
        for step, ranks in self._steps.items():
            for (rank, name), found in match_partners(ranks).items():
                fields = [_fields(database, step, partners) for partners in found]
                database.join(Place(step, rank), name, fields[0] if len(fields) == 1 else fields)


def _fields(database: Database, step: int, partners: Partners) -> dict[str, Any]:
    nodes = {
        str(rank): [database.communications.get((Place(step, rank), name), "Nan"), name]
        for rank, name in partners.records.items()
    }
    return {"communications_type": partners.direction, "nodes_info": nodes}
