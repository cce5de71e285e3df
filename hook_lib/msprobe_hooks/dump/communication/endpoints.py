"""Endpoints of recorded communication (ranks, values, groups), and the matching of transfers between ranks."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias, TypeVar

from msprobe_hooks.dump.communication.collectives import (
    BARRIER,
    BARRIERS,
    BATCH,
    EQUAL,
    FROM_ROOT,
    FUSED,
    RECEIVES,
    REDUCING,
    SENDS,
    SHARED,
    TO_ROOT,
    Communicated,
    align,
    group_of,
    read_communicated,
    size_of,
)
from msprobe_hooks.dump.names import plain_dtype
from msprobe_hooks.dump.schema import Element, ForwardRecord, MappingElement, TensorElement, ValueElement, tensors_of

Key: TypeAlias = tuple[object, ...]

#: A tensor's dtype, without the framework's name, and its shape.
TensorKind: TypeAlias = tuple[str, tuple[int, ...]]

_WORLD: Key = ("group", "")
# What frameworks call the group of all ranks where they name groups.
_WORLD_GROUPS = frozenset({"hccl_world_group", "nccl_world_group", "mccl_world_group"})
# What PyTorch returns to a rank for a group of which it is not a member.
_NON_GROUP_MEMBER = -100


@dataclass(frozen=True, slots=True)
class End:
    """One end of a transfer. Ends of one ``key``, a group or a pair of ranks, are brought together in their order.

    ``expected`` are the ranks that take part, empty where the record does not say. All ends of a transfer should agree
    in ``operation``, ``root``, ``reduction`` and ``tensors``, dtype and shape of what all ranks have alike; each is
    None where the record does not say. ``values`` is a digest of what all ends of it should hold in the end, by
    checksums or statistics; of an operation that leaves each rank its own values, None.
    """

    key: Key
    gives: bool
    takes: bool
    expected: frozenset[int] = frozenset()
    operation: str | None = None
    root: int | None = None
    reduction: str | None = None
    tensors: tuple[TensorKind, ...] | None = None
    values: int | None = None

    @property
    def is_point_to_point(self) -> bool:
        """Return whether it is a send or a receive."""
        return self.key[0] == "p2p"


def ends_of(record: ForwardRecord, rank: int, world: frozenset[int]) -> tuple[End, ...]:
    """Return the ends of the transfers that a record is about; none where it does not name a partner.

    ``world`` are the ranks whose dumps there are. Raises ValueError where its name follows no grammar.
    """
    call = read_communicated(record)
    api, operation = call.api, call.operation
    if api in FUSED:
        return (_fused_end(call, world),)
    if api == BATCH:
        return tuple(_batch_ends(list(call.before.values()), list(call.after.values()), rank))
    if _is_outside(call):
        return ()
    group = group_ranks(call.before.get("group"))
    if api in SENDS or api in RECEIVES:
        sends = api in SENDS
        peer = _root(call, "dst" if sends else "src", group)
        tag = _integer(call.before.get("tag")) or 0
        tensor = call.before.get("tensor") if sends else call.after.get("tensor") or call.returned
        return () if peer is None else (_transfer(rank, peer, tag, tensor, call.either.get("tensor"), sends=sends),)
    name = _group_name(call.before.get("group"))
    # One rank may name the group of all ranks where another leaves it to the default.
    is_world = world.issubset(group) if group else not name
    root = _root(call, "src" if api in FROM_ROOT else "dst", group) if api in FROM_ROOT or api in TO_ROOT else None
    return (
        End(
            _WORLD if is_world else ("group", group or name),
            gives=api not in BARRIERS and (api not in FROM_ROOT or root == rank),
            takes=api not in BARRIERS and (root is None or (api in FROM_ROOT) is (root != rank)),
            expected=_members(group) if group else world if is_world else frozenset(),
            operation=operation,
            root=root,
            reduction=reduction_of(call),
            tensors=_kinds(call.either.get(SHARED.get(operation, "")) or call.returned),
            values=_digest(call.after.get(EQUAL[operation]) or call.returned) if operation in EQUAL else None,
        ),
    )


def _fused_end(call: Communicated, world: frozenset[int]) -> End:
    """Return the end of a call that computes too; its record has the group's name, and often how many ranks it has."""
    is_of_all = size_of(call.before) == len(world)
    is_barrier = call.api == BARRIER
    return End(
        ("group", group_of(call.before)),
        gives=not is_barrier,
        takes=not is_barrier,
        expected=world if is_of_all else frozenset(),
        operation=call.operation,
    )


@lru_cache
def _members(group: tuple[int, ...]) -> frozenset[int]:
    return frozenset(group)


def _transfer(rank: int, peer: int, tag: int, values: Element, kinds: Element, *, sends: bool) -> End:
    source, destination = (rank, peer) if sends else (peer, rank)
    return End(
        ("p2p", source, destination, tag),
        gives=sends,
        takes=not sends,
        expected=_members((source, destination)),
        tensors=_kinds(kinds),
        values=_digest(values),
    )


def _batch_ends(before: list[Element], after: list[Element], rank: int) -> Iterator[End]:
    received = list(batched(after))
    for place, operation in enumerate(batched(before)):
        name, peer = _text(operation.get("op")), _integer(operation["peer"])
        if peer is not None and name in SENDS | RECEIVES:
            sends = name in SENDS
            then = received[place] if place < len(received) else {}
            values = (operation if sends else then).get("tensor")
            kinds = then.get("tensor") or operation.get("tensor")
            yield _transfer(rank, peer, _integer(operation.get("tag")) or 0, values, kinds, sends=sends)


def batched(elements: Iterable[Element]) -> Iterator[Mapping[str, Element]]:
    """Yield the sends and receives of a batch, each by the names of its fields: ``op``, ``peer``, ``tag``, ``tensor``.

    ``elements`` are the batch's arguments, before the call or after it.
    """
    for element in elements:
        if isinstance(element, list):
            yield from batched(element)
        elif isinstance(element, MappingElement) and "peer" in element.items:
            yield element.items


def _kinds(element: Element) -> tuple[TensorKind, ...] | None:
    """Return dtype and shape of the tensors of an argument, None where they are not recorded."""
    if isinstance(element, TensorElement):
        return _interned(((element.dtype, element.shape),))
    return _interned(tuple((tensor.dtype, tensor.shape) for tensor in tensors_of([element])))


@lru_cache(4096)
def _interned(kinds: tuple[TensorKind, ...]) -> tuple[TensorKind, ...] | None:
    return tuple((plain_dtype(dtype), shape) for dtype, shape in kinds) or None


def _digest(element: Element) -> int | None:
    """Return a number that is the same for the same recorded values, None where there are none."""
    tensors = tensors_of([element])
    if not tensors or any(tensor.checksum is None and tensor.max is None for tensor in tensors):
        return None
    return hash(tuple((t.checksum, t.max, t.min, t.mean, t.norm) for t in tensors))


def reduction_of(call: Communicated) -> str | None:
    """Return how values are reduced, as ``SUM``; None where they are not, or the record does not say how."""
    if call.operation not in REDUCING:
        return None
    element = call.before.get("op")
    name = _text(element)
    if name is None:
        return "SUM" if element is None else None
    # An operator with a factor is printed with its place in memory.
    return None if " at 0x" in name else name.rpartition(".")[2].upper()


def _root(call: Communicated, role: str, group: Sequence[int]) -> int | None:
    """Return the rank, counted over all groups, that ``src`` or ``dst`` names; None where a receive takes from any."""
    within = _integer(call.before.get(f"group_{role}"))
    if within is not None:
        return group[within] if 0 <= within < len(group) else within if not group else None
    named = _integer(call.before.get(role))
    if named is not None:
        return named
    # MindSpore's receives have a default, PyTorch's take from any rank.
    return None if call.api in RECEIVES and call.returned is None else 0


def _integer(element: Element) -> int | None:
    value = element.value if isinstance(element, ValueElement) else None
    return value if type(value) is int else None


def _text(element: Element) -> str | None:
    value = element.value if isinstance(element, ValueElement) else None
    return value if isinstance(value, str) else None


def group_ranks(element: Element) -> tuple[int, ...]:
    """Return the ranks of a recorded process group, ascending; none where the record does not say."""
    value = element.value if isinstance(element, ValueElement) else None
    ranks = value.get("group_ranks") if isinstance(value, dict) else None
    return tuple(sorted(ranks)) if isinstance(ranks, list) and all(type(rank) is int for rank in ranks) else ()


def is_outside(record: ForwardRecord) -> bool:
    """Return whether a rank called in a group of which it is not a member, which PyTorch lets pass and does nothing.

    Raises ValueError where the record's name follows no grammar.
    """
    return _is_outside(read_communicated(record))


def _is_outside(call: Communicated) -> bool:
    return _integer(call.before.get("group")) == _NON_GROUP_MEMBER


def _group_name(element: Element) -> str:
    """Return the name of a group whose ranks are not recorded; none for that of all ranks."""
    value = element.value if isinstance(element, ValueElement) else None
    if isinstance(value, dict):
        value = value.get("group_id")
    return value if isinstance(value, str) and value not in _WORLD_GROUPS else ""


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
    """Match the ends of each transfer, from the communication records of each rank in their order.

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
