"""Transfers between ranks: which records of ranks belong together, and in what order.

The n-th send of one rank to another belongs to the n-th receive there; the n-th collective in a group belongs to the
n-th on the group's other ranks, but where a rank lacks one or has one more.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from msprobe_hooks.dump.communication.alignment import align
from msprobe_hooks.dump.communication.endpoints import End, Key


@dataclass(slots=True)
class Communication:
    """A record of communication of one rank, with its ends of transfers."""

    rank: int
    name: str
    ends: tuple[End, ...]


C = TypeVar("C", bound=Communication)

#: By transfer, its key and its number in the order of the key, the records that share it, each with its end of it.
Transfers: TypeAlias = Mapping[tuple[Key, int], list[tuple[C, End]]]


def match_transfers(ranks: Iterable[Iterable[C]]) -> Transfers[C]:
    """Bring the ends of each transfer together, from the communication records of each rank in their order.

    A rank that lacks a call, has one more or made it in another order loses that one and none of those behind it.
    """
    ends = defaultdict[Key, dict[tuple[int, bool], list[tuple[C, End]]]](lambda: defaultdict(list))
    for records in ranks:
        for record in records:
            for end in record.ends:
                # A rank that sends to itself has both ends of a transfer.
                ends[end.key][record.rank, end.is_point_to_point and end.gives].append((record, end))
    transfers: dict[tuple[Key, int], list[tuple[C, End]]] = {}
    for key, sides in ends.items():
        sequences = list(sides.values())
        for number, column in enumerate(align(dict(enumerate(map(_contents, _comparable(sequences)))))):
            transfers[key, number] = [sequences[side][place] for side, place in sorted(column.items())]
    return transfers


def _comparable(sequences: list[list[tuple[C, End]]]) -> list[list[tuple[End, bool]]]:
    """Return the ends, each with whether all ends of the operation record its tensors."""
    unknown = {end.operation for sequence in sequences for _, end in sequence if end.tensors is None}
    return [[(end, end.operation not in unknown) for _, end in sequence] for sequence in sequences]


def _contents(ends: list[tuple[End, bool]]) -> list[tuple[object, ...]]:
    return [(end.operation, end.root, end.reduction, end.tensors if has_tensors else None) for end, has_tensors in ends]


def in_layers(ranks: Iterable[Sequence[C]], transfers: Transfers[C]) -> Iterator[list[C]]:
    """Yield communication records that may happen at the same time, earlier ones first, by rank.

    A record happens together with the other ends of its transfers, after all that is before any of them on its rank.
    Where records are missing or are written out of order this may wait for itself: then the earliest one goes ahead.
    """
    ranks = list(ranks)
    joined = _join(ranks, transfers)
    queues = {records[0].rank: deque(records) for records in ranks if records}
    reached = dict.fromkeys(queues, 0)
    done: set[int] = set()
    waiting: dict[int, int] = {}
    layers = defaultdict[int, list[C]](list)
    ready: deque[list[C]] = deque()

    def advance(rank: int) -> None:
        queue = queues[rank]
        while queue and id(queue[0]) in done:
            queue.popleft()
        if queue:
            event = joined[id(queue[0])]
            waiting[id(event)] = waiting.get(id(event), 0) + 1
            if waiting[id(event)] == len(event):
                ready.append(event)

    for rank in queues:
        advance(rank)
    while any(queues.values()):
        if not ready:
            head = min(
                (queue[0] for queue in queues.values() if queue), key=lambda node: (reached[node.rank], node.rank)
            )
            ready.append(joined[id(head)])
        event = ready.popleft()
        layer = 1 + max(reached[node.rank] for node in event)
        heads = [node.rank for node in event if queues[node.rank] and queues[node.rank][0] is node]
        for node in event:
            done.add(id(node))
            reached[node.rank] = layer
        layers[layer] += event
        for rank in heads:
            advance(rank)
    for _, nodes in sorted(layers.items()):
        yield sorted(nodes, key=lambda node: node.rank)


def _join(ranks: Iterable[Iterable[C]], transfers: Transfers[C]) -> dict[int, list[C]]:
    """Return, by identity, the records that happen together: those that share a transfer, directly or not."""
    joined = {id(node): [node] for records in ranks for node in records}
    for members in transfers.values():
        groups = {id(group): group for group in (joined[id(node)] for node, _ in members)}
        largest, *others = sorted(groups.values(), key=len, reverse=True)
        for group in others:
            largest += group
            for node in group:
                joined[id(node)] = largest
    return joined
