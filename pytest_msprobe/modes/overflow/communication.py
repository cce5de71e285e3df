"""What a communication record says about who gives values to whom, and which records of other ranks are its others.

The n-th send of one rank to another belongs to the n-th receive there; the n-th call of a collective in a group
belongs to the n-th call of it on the group's other ranks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from msprobe_hooks.dump.collectives import RECEIVED
from msprobe_hooks.dump.names import is_forward, parse_api_name
from msprobe_hooks.dump.schema import Element, ForwardRecord, MappingElement, ValueElement

_SENDS = frozenset({"send", "isend", "send_object_list"})
_RECEIVES = frozenset({"recv", "irecv", "recv_object_list"})
# One rank gives to all others, or all give to one.
_FROM_ROOT = frozenset({"broadcast", "broadcast_object_list", "scatter", "scatter_object_list"})
_TO_ROOT = frozenset({"reduce", "gather", "gather_object"})

_BATCH = "batch_isend_irecv"

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
    if api == _BATCH:
        return tuple(_batch_ends(record.args, rank))
    if api in _SENDS or api in _RECEIVES:
        role = "dst" if api in _SENDS else "src"
        peer = _root(record, role, group)
        tag = _integer(record.kwargs.get("tag")) or 0
        return () if peer is None else (_transfer(rank, peer, tag, sends=api in _SENDS),)
    # One rank may name the group of all ranks where another leaves it to the default.
    key = (api, _group_name(record) if world.issubset(group) or not group else tuple(sorted(group)))
    expected = frozenset(group) or world
    if api in _FROM_ROOT:
        root = _root(record, "src", group)
        return (End((*key, root), gives=root == rank, takes=root != rank, expected=expected),)
    if api in _TO_ROOT:
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
            if peer is not None and name in _SENDS | _RECEIVES:
                yield _transfer(rank, peer, _integer(element.items.get("tag")) or 0, sends=name in _SENDS)


def _root(record: ForwardRecord, role: str, group: list[int]) -> int | None:
    """Return the rank, counted over all groups, that ``src`` or ``dst`` names; the default is rank 0."""
    within = _integer(record.kwargs.get(f"group_{role}"))
    if within is not None:
        return group[within] if 0 <= within < len(group) else within if not group else None
    named = _integer(record.kwargs.get(role))
    if named is not None:
        return named
    positional = next((number for number in map(_integer, record.args) if number is not None), None)
    if positional is None and parse_api_name(record.name).api in _FROM_ROOT | _TO_ROOT:
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


class Numbering:
    """Numbers the ends of one rank in the order of its records."""

    def __init__(self) -> None:
        self._seen: Counter[tuple[Key, bool, bool]] = Counter()

    def transfer_of(self, end: End) -> tuple[Key, int]:
        """Return which transfer an end belongs to."""
        # A rank that sends to itself has both ends of a transfer; a root changes no collective's count.
        side = (end.key, end.gives, end.takes) if end.key[0] == "p2p" else (end.key, True, True)
        self._seen[side] += 1
        return end.key, self._seen[side]
