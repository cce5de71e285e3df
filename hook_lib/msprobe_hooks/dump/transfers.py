"""Transfers between ranks: who gives values to whom, which records of ranks belong together, and in what order.

The n-th send of one rank to another belongs to the n-th receive there; the n-th call of a collective in a group
belongs to the n-th call of it on the group's other ranks.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from msprobe_hooks.dump.collectives import BATCH, FROM_ROOT, RECEIVED, RECEIVES, SENDS, TO_ROOT
from msprobe_hooks.dump.names import is_forward, parse_api_name
from msprobe_hooks.dump.schema import Element, ForwardRecord, MappingElement, ValueElement

Key: TypeAlias = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class End:
    """One end of a transfer. The ends with the same ``key`` and ``number`` are one transfer.

    ``expected`` are the ranks that take part, empty where the record does not say.
    """

    key: Key
    gives: bool
    takes: bool
    expected: frozenset[int] = frozenset()


def is_communication(name: str) -> bool:
    """Tell whether a record is about communication between ranks."""
    return name.startswith(("Distributed.", "MintDistributed.")) and is_forward(name)


def is_written(name: str, position: str) -> bool:
    """Tell whether an argument of a communication record, by index or name, is only a place for the result."""
    return position in RECEIVED.get(parse_api_name(name).api, ())


def ends_of(record: ForwardRecord, rank: int, world: frozenset[int]) -> tuple[End, ...]:
    """Return the ends of the transfers that a record is about; none where it does not say with whom.

    ``world`` are the ranks whose dumps there are. Raises ValueError where its name follows no grammar.
    """
    api = parse_api_name(record.name).api
    group = _group_ranks(record)
    if api == BATCH:
        return tuple(_batch_ends(record.args, rank))
    if api in SENDS or api in RECEIVES:
        role = "dst" if api in SENDS else "src"
        peer = _root(record, role, group)
        tag = _integer(record.kwargs.get("tag")) or 0
        return () if peer is None else (_transfer(rank, peer, tag, sends=api in SENDS),)
    # One rank may name the group of all ranks where another leaves it to the default.
    key = (api, _group_name(record) if world.issubset(group) or not group else tuple(sorted(group)))
    expected = frozenset(group) or world
    if api in FROM_ROOT:
        root = _root(record, "src", group)
        return (End((*key, root), gives=root == rank, takes=root != rank, expected=expected),)
    if api in TO_ROOT:
        root = _root(record, "dst", group)
        return (End((*key, root), gives=True, takes=root == rank, expected=expected),)
    return (End(key, gives=True, takes=True, expected=expected),)


def _transfer(rank: int, peer: int, tag: int, *, sends: bool) -> End:
    source, destination = (rank, peer) if sends else (peer, rank)
    return End(("p2p", source, destination, tag), gives=sends, takes=not sends, expected=frozenset({rank, peer}))


def _batch_ends(elements: Iterable[Element], rank: int) -> Iterator[End]:
    for element in elements:
        if isinstance(element, list):
            yield from _batch_ends(element, rank)
        elif isinstance(element, MappingElement) and "peer" in element.items:
            operation, peer = element.items.get("op"), _integer(element.items["peer"])
            name = operation.value if isinstance(operation, ValueElement) else None
            if peer is not None and name in SENDS | RECEIVES:
                yield _transfer(rank, peer, _integer(element.items.get("tag")) or 0, sends=name in SENDS)


def _root(record: ForwardRecord, role: str, group: list[int]) -> int | None:
    """Return the rank, counted over all groups, that ``src`` or ``dst`` names; the default is rank 0."""
    within = _integer(record.kwargs.get(f"group_{role}"))
    if within is not None:
        return group[within] if 0 <= within < len(group) else within if not group else None
    named = _integer(record.kwargs.get(role))
    if named is not None:
        return named
    positional = next((number for number in map(_integer, record.args) if number is not None), None)
    if positional is None and parse_api_name(record.name).api in FROM_ROOT | TO_ROOT:
        return 0
    return positional


def _integer(element: Element) -> int | None:
    value = element.value if isinstance(element, ValueElement) else None
    return value if type(value) is int else None


def _group_ranks(record: ForwardRecord) -> list[int]:
    for element in (*record.args, *record.kwargs.values()):
        if isinstance(element, ValueElement) and isinstance(element.value, dict):
            ranks = element.value.get("group_ranks")
            if isinstance(ranks, list) and all(type(rank) is int for rank in ranks):
                return ranks
    return []


def _group_name(record: ForwardRecord) -> str:
    element = record.kwargs.get("group")
    return element.value if isinstance(element, ValueElement) and isinstance(element.value, str) else ""


@dataclass(slots=True)
class Communication:
    """A record of communication of one rank, with its ends of transfers."""

    rank: int
    name: str
    ends: tuple[End, ...]


C = TypeVar("C", bound=Communication)

#: By transfer, the communication records that share it, each with its end of it.
Transfers: TypeAlias = Mapping[tuple[Key, int], list[tuple[C, End]]]


def match_transfers(ranks: Iterable[Iterable[C]]) -> Transfers[C]:
    """Bring the ends of each transfer together, from the communication records of each rank in their order."""
    transfers = defaultdict[tuple[Key, int], list[tuple[C, End]]](list)
    for records in ranks:
        numbering = _Numbering()
        for record in records:
            for end in record.ends:
                transfers[numbering.transfer_of(end)].append((record, end))
    return transfers


class _Numbering:
    """Numbers the ends of one rank in the order of its records."""

    def __init__(self) -> None:
        self._seen: Counter[tuple[Key, bool, bool]] = Counter()

    def transfer_of(self, end: End) -> tuple[Key, int]:
        """Return which transfer an end belongs to."""
        # A rank that sends to itself has both ends of a transfer; a root changes no collective's count.
        side = (end.key, end.gives, end.takes) if end.key[0] == "p2p" else (end.key, True, True)
        self._seen[side] += 1
        return end.key, self._seen[side]


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
