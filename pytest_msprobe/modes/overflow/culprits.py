"""Where inf or nan first arose, over all ranks of a step.

The order of msprobe's offline analysis: before any communication, between communications in the order in which they
let values through, after the last. Every record is looked at once.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum

from msprobe_hooks.dump.names import is_module_name
from msprobe_hooks.dump.reader import Dump
from msprobe_hooks.errors import RecordError
from pytest_msprobe.modes.overflow.communication import End, Key, Numbering, ends_of, is_communication, is_written
from pytest_msprobe.modes.overflow.ignore import Rules, is_ignored
from pytest_msprobe.modes.overflow.ranks import Step
from pytest_msprobe.modes.overflow.scenes import (
    Finding,
    Scene,
    Traffic,
    find_scene,
    is_judgeable,
    may_hold_non_finite,
    read_traffic,
)


class Phase(Enum):
    """When a culprit ran; the value is what the user reads."""

    BEFORE = "before any communication"
    DURING = "between communications"
    AFTER = "after the last communication"


@dataclass(frozen=True, slots=True)
class Culprit:
    """A record in which inf or nan arises. ``missing`` are ranks that took part and have no matching record."""

    rank: int
    name: str
    finding: Finding
    phase: Phase
    missing: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Source:
    """The record of another rank that gave the inf or nan which a communication record took."""

    rank: int
    name: str


@dataclass(frozen=True, slots=True)
class Analysis:
    """What came of a step.

    ``culprits`` are the first, by no communication later than each other: at most one per rank. ``received`` says of a
    communication record, by rank and name, where its inf or nan came from; ``arising`` are all records of a rank in
    which some arise. ``malformed`` are records that had to be
    left out.
    """

    culprits: tuple[Culprit, ...] = ()
    received: Mapping[tuple[int, str], Source] = field(default_factory=dict)
    arising: Mapping[int, list[str]] = field(default_factory=dict)
    malformed: tuple[tuple[int, str], ...] = ()


@dataclass(slots=True)
class _Node:
    """A communication record and the suspects that ran since the one before it."""

    rank: int
    name: str
    finding: Finding | None
    gives_anomaly: bool
    ends: tuple[End, ...]
    suspects: list[Culprit]
    missing: set[int] = field(default_factory=set)
    is_explained: bool = False


@dataclass(slots=True)
class _Rank:
    """What is known of one rank: communication in order, the suspects after the last one."""

    number: int
    nodes: list[_Node] = field(default_factory=list)
    suspects: list[Culprit] = field(default_factory=list)
    arising: list[str] = field(default_factory=list)
    malformed: list[tuple[int, str]] = field(default_factory=list)


def analyse(step: Step, rules: Rules) -> Analysis:
    """Find the first culprits of a step."""
    world = frozenset(step.ranks)
    ranks = [_read_rank(rank, dump, rules, world) for rank, dump in step.ranks.items()]
    transfers = _match(ranks)
    received = _explain(transfers)
    culprits = _before(ranks) or _during(ranks, transfers) or _after(ranks)
    arising = {rank.number: rank.arising for rank in ranks}
    return Analysis(tuple(culprits), received, arising, tuple(entry for rank in ranks for entry in rank.malformed))


def _read_rank(rank: int, dump: Dump, rules: Rules, world: frozenset[int]) -> _Rank:
    found = _Rank(rank)
    for name, raw in dump.records.items():
        communicates = is_communication(name)
        if not communicates and (not may_hold_non_finite(bytes(raw)) or not is_judgeable(name)):
            continue
        try:
            traffic = read_traffic(dump, name)
            ends = ends_of(dump.forward(name), rank, world) if communicates else ()
        except (RecordError, ValueError):
            found.malformed.append((rank, name))
            continue
        finding = find_scene(traffic)
        if finding is not None and is_ignored(finding, name, rules):
            finding = None
        arises = finding is not None and finding.scene is Scene.ARISES
        if arises:
            found.arising.append(name)
        if communicates:
            gives = any(end.gives for end in ends) and _gives_anomaly(traffic, finding)
            found.nodes.append(_Node(rank, name, finding, gives, ends, found.suspects))
            found.suspects = []
        elif finding is not None and arises:
            phase = Phase.DURING if found.nodes else Phase.BEFORE
            found.suspects.append(Culprit(rank, name, finding, phase))
    return found


def _gives_anomaly(traffic: Traffic, finding: Finding | None) -> bool:
    if finding is None or finding.scene is Scene.JUMPS:
        return False
    return any(not is_written(traffic.name, place.position) for place in finding.inputs)


_Transfers = Mapping[tuple[Key, int], list[tuple[_Node, End]]]


def _match(ranks: Iterable[_Rank]) -> _Transfers:
    """Bring the ends of each transfer together and note the ranks that lack theirs."""
    transfers = defaultdict[tuple[Key, int], list[tuple[_Node, End]]](list)
    for rank in ranks:
        numbering = Numbering()
        for node in rank.nodes:
            for end in node.ends:
                transfers[numbering.transfer_of(end)].append((node, end))
    for members in transfers.values():
        present = {node.rank for node, _ in members}
        for node, end in members:
            node.missing |= end.expected - present
    return transfers


def _explain(transfers: _Transfers) -> dict[tuple[int, str], Source]:
    received = {}
    for members in transfers.values():
        giver = next((node for node, end in members if end.gives and node.gives_anomaly), None)
        if giver is None:
            continue
        for node, end in members:
            if end.takes and _arises(node):
                node.is_explained = True
                received[node.rank, node.name] = Source(giver.rank, giver.name)
    return received


def _arises(node: _Node) -> bool:
    return node.finding is not None and node.finding.scene is Scene.ARISES


def _before(ranks: Iterable[_Rank]) -> list[Culprit]:
    """Return the first suspect of each rank before it communicates; those that are passed on come first."""
    found = []
    for rank in ranks:
        suspects = rank.nodes[0].suspects if rank.nodes else rank.suspects
        passes_on = bool(rank.nodes) and rank.nodes[0].gives_anomaly
        found += [(not passes_on, suspect) for suspect in _first(suspects)]
    return [suspect for _, suspect in sorted(found, key=lambda entry: (entry[0], entry[1].rank))]


def _during(ranks: list[_Rank], transfers: _Transfers) -> list[Culprit]:
    """Return the first suspects in the order of communication, or the first communication that is one itself."""
    for nodes in _layers(ranks, transfers):
        passing_on = sorted((node for node in nodes if node.suspects), key=lambda node: not node.gives_anomaly)
        found = [suspect for node in passing_on for suspect in _first(node.suspects)]
        found = found or [
            Culprit(node.rank, node.name, node.finding, Phase.DURING, tuple(sorted(node.missing)))
            for node in nodes
            if node.finding is not None and _arises(node) and not node.is_explained
        ]
        if found:
            return found
    return []


def _after(ranks: Iterable[_Rank]) -> list[Culprit]:
    return [
        Culprit(suspect.rank, suspect.name, suspect.finding, Phase.AFTER)
        for rank in ranks
        if rank.nodes
        for suspect in _first(rank.suspects)
    ]


def _first(suspects: list[Culprit]) -> list[Culprit]:
    """Return the first suspect as a list; an API says more than the module around it, which ends later."""
    apis = [suspect for suspect in suspects if not is_module_name(suspect.name)]
    return (apis or suspects)[:1]


def _layers(ranks: list[_Rank], transfers: _Transfers) -> Iterator[list[_Node]]:
    """Yield communication records that may happen at the same time, earlier ones first, by rank.

    A record happens together with the other ends of its transfers, after all that is before any of them on its rank.
    Where records are missing or are written out of order this may wait for itself: then the earliest one goes ahead.
    """
    joined = _join(ranks, transfers)
    queues = {node.rank: deque(rank.nodes) for rank in ranks for node in rank.nodes[:1]}
    reached = dict.fromkeys(queues, 0)
    done: set[int] = set()
    waiting: dict[int, int] = {}
    layers = defaultdict[int, list[_Node]](list)
    ready: deque[list[_Node]] = deque()

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


def _join(ranks: Iterable[_Rank], transfers: _Transfers) -> dict[int, list[_Node]]:
    """Return, by identity, the records that happen together: those that share a transfer, directly or not."""
    joined = {id(node): [node] for rank in ranks for node in rank.nodes}
    for members in transfers.values():
        groups = {id(group): group for group in (joined[id(node)] for node, _ in members)}
        largest, *others = sorted(groups.values(), key=len, reverse=True)
        for group in others:
            largest += group
            for node in group:
                joined[id(node)] = largest
    return joined
