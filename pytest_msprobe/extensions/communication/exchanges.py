"""Exchanges of a step: communication over all ranks that took part, in the order in which it can have happened."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise

from msprobe_hooks.dump.communication.endpoints import End, Key, Transfers, in_layers, match_transfers
from msprobe_hooks.dump.communication.jsonl import Call, RankCalls

# By rank and whether it sends, the exchanges that it took part in, each with the place of its call.
_Sides = dict[tuple[int, bool], list[tuple["Exchange", int]]]


@dataclass(slots=True)
class Exchange:
    """One communication: a collective of a group, or a message from one rank to another.

    ``members`` are the calls of the ranks that took part, in the order of the ranks, each with its end. ``order``
    counts the step's exchanges in the order in which they can have happened; ``previous`` is the one before it in the
    same group, or between the same ranks. ``out_of_order`` are ranks that made the call at another place in their order
    than the others. ``behind`` gives, for ranks that lack the call, the place of their last call before this one in the
    same group, or between the same ranks; -1 where there is none.
    """

    key: Key
    members: list[tuple[Call, End]]
    order: int = 0
    previous: Exchange | None = None
    out_of_order: set[int] = field(default_factory=set)
    behind: dict[int, int] = field(default_factory=dict)

    @property
    def lead(self) -> Call:
        """The call of the first rank that took part."""
        return self.members[0][0]

    @property
    def is_point_to_point(self) -> bool:
        """Return whether it is a message from one rank to another."""
        return self.members[0][1].is_point_to_point

    @property
    def expected(self) -> frozenset[int]:
        """The ranks that should take part, as far as any record names them."""
        return frozenset[int]().union(*{end.expected for _, end in self.members})

    @property
    def missing(self) -> frozenset[int]:
        """The ranks that should take part and have no such call, or no such end of a message to themselves."""
        if self.is_point_to_point and len(self.members) < 2:
            return self.expected - {self.lead.rank} or self.expected
        return self.expected - {call.rank for call, _ in self.members}


def find_exchanges(ranks: Iterable[RankCalls]) -> list[Exchange]:
    """Match the calls of all ranks, in the order in which they can have happened.

    A call that does not say with whom it communicates is in none.
    """
    calls = [rank.calls for rank in ranks]
    transfers = match_transfers(calls)
    exchanges = [Exchange(key, members) for (key, _), members in transfers.items()]
    _link(exchanges)
    layers = _layers(calls, transfers)
    exchanges.sort(key=lambda one: (layers[id(one.lead)], one.lead.rank, one.lead.place))
    for order, exchange in enumerate(exchanges):
        exchange.order = order
    return exchanges


def _layers(calls: list[list[Call]], transfers: Transfers[Call]) -> dict[int, int]:
    return {id(call): layer for layer, together in enumerate(in_layers(calls, transfers)) for call in together}


def _link(exchanges: Iterable[Exchange]) -> None:
    """Note of each exchange what is before it, and which ranks made it at another place than the others."""
    channels = defaultdict[Key, list[Exchange]](list)
    for exchange in exchanges:
        channels[exchange.key].append(exchange)
    for channel in channels.values():
        for before, after in pairwise(channel):
            after.previous = before
        sides: _Sides = defaultdict(list)
        latest: dict[int, int] = {}
        for exchange in channel:
            exchange.behind = {rank: latest.get(rank, -1) for rank in exchange.missing}
            for call, end in exchange.members:
                latest[call.rank] = call.place
                sides[call.rank, end.gives and exchange.is_point_to_point].append((exchange, call.place))
        for (rank, _), own in sides.items():
            for (exchange, _), is_out in zip(own, _not_ascending([place for _, place in own]), strict=True):
                if is_out:
                    exchange.out_of_order.add(rank)


def _not_ascending(places: list[int]) -> list[bool]:
    """Return for each number whether a greater one comes before it or a smaller one behind."""
    moved = [False] * len(places)
    highest, lowest = -1, len(places) and max(places) + 1
    for i, place in enumerate(places):
        moved[i] |= place < highest
        highest = max(highest, place)
    for i, place in reversed(list(enumerate(places))):
        moved[i] |= place > lowest
        lowest = min(lowest, place)
    return moved
