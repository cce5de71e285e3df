"""Origins of inf or nan, over all ranks of a step, and messages on them with the call site of a record.

The order of msprobe's offline analysis: before any communication, between communications in the order in which they
let values through, after the last. Every record is looked at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from msprobe_hooks.dump.call_context import Surroundings, modules_around, relevant_frames
from msprobe_hooks.dump.communication.endpoints import Communication, Transfers, ends_of, in_layers, match_transfers
from msprobe_hooks.dump.communication.jsonl import Step
from msprobe_hooks.dump.effects import effects_of_record
from msprobe_hooks.dump.names import direction_of, is_communication, is_module_name
from msprobe_hooks.dump.reader import Dump
from msprobe_hooks.dump.recording_paths import STACK_FILE
from msprobe_hooks.dump.schema import TensorElement
from msprobe_hooks.errors import RecordError
from msprobe_hooks.extensions.overflow.anomaly import (
    AnomalyKind,
    Finding,
    IgnoreRules,
    NumbersSoFar,
    RecordIO,
    ValuePath,
    find_scene,
    is_ignored,
    is_judgeable,
    is_numeric,
    may_hold_non_finite,
    read_record_io,
)

_FRAMES_SHOWN = 3
_PLACES_SHOWN = 8

#: What happens in a communication that has its inf or nan from another rank.
RECEIVED = "inf or nan received from another rank"


class Phase(Enum):
    """Phase in which a culprit ran; the value is what the user reads."""

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
    """Outcome of a step.

    ``culprits`` are the first, by no communication later than each other: at most one per rank. ``received`` says of a
    communication record, by rank and name, where its inf or nan came from; ``arising`` are all records of a rank in
    which some arise, ``beginnings`` the findings of those that alone seem to pass them on. ``malformed`` are records
    that had to be left out. ``together`` are the records of each communication by rank and name, in the order
    in which they can have happened.
    """

    culprits: tuple[Culprit, ...] = ()
    received: Mapping[tuple[int, str], Source] = field(default_factory=dict)
    arising: Mapping[int, list[str]] = field(default_factory=dict)
    beginnings: Mapping[int, Mapping[str, Finding]] = field(default_factory=dict)
    malformed: tuple[tuple[int, str], ...] = ()
    together: Sequence[Sequence[tuple[int, str]]] = ()


@dataclass(slots=True)
class _Node(Communication):
    """A communication record and the suspects that ran since the one before it."""

    finding: Finding | None
    gives_anomaly: bool
    suspects: list[Culprit]
    missing: set[int] = field(default_factory=set)
    is_explained: bool = False


@dataclass(slots=True)
class _Rank:
    """State of one rank: communication in order, the suspects after the last one.

    After exp, all_reduce, mul, all_reduce and div, of which exp and div gave inf::

        nodes     [_Node(all_reduce.0, suspects=[<exp.0>]), _Node(all_reduce.1, suspects=[])]
        suspects  [<div.0>]
        arising   ["exp.0", "div.0"]
    """

    number: int
    nodes: list[_Node] = field(default_factory=list)
    suspects: list[Culprit] = field(default_factory=list)
    arising: list[str] = field(default_factory=list)
    beginnings: dict[str, Finding] = field(default_factory=dict)
    malformed: list[tuple[int, str]] = field(default_factory=list)


def analyse(step: Step, rules: IgnoreRules) -> Analysis:
    """Find the first culprits of a step."""
    world = frozenset(step.ranks)
    ranks = [_read_rank(rank, dump, rules, world) for rank, dump in step.ranks.items()]
    transfers = match_transfers(rank.nodes for rank in ranks)
    _note_missing(transfers)
    received = _explain(transfers)
    culprits = _before(ranks) or _during(ranks, transfers) or _after(ranks)
    arising = {rank.number: rank.arising for rank in ranks}
    beginnings = {rank.number: rank.beginnings for rank in ranks}
    malformed = tuple(entry for rank in ranks for entry in rank.malformed)
    return Analysis(tuple(culprits), received, arising, beginnings, malformed, _together(ranks, transfers))


def _together(ranks: Sequence[_Rank], transfers: Transfers[_Node]) -> list[list[tuple[int, str]]]:
    layers = in_layers([rank.nodes for rank in ranks], transfers)
    layer_of = {id(node): number for number, layer in enumerate(layers) for node in layer}
    groups = sorted(transfers.values(), key=lambda members: min(layer_of[id(node)] for node, _ in members))
    return [[(node.rank, node.name) for node, _ in members] for members in groups]


def _read_rank(rank: int, dump: Dump, rules: IgnoreRules, world: frozenset[int]) -> _Rank:
    state, so_far = _Rank(rank), NumbersSoFar()
    for name, raw in dump.records.items():
        communicates = is_communication(name)
        if not communicates and (not may_hold_non_finite(bytes(raw)) or not is_judgeable(name)):
            continue
        try:
            traffic = read_record_io(dump, name)
            ends = ends_of(dump.forward(name), rank, world) if communicates else ()
        except (RecordError, ValueError):
            state.malformed.append((rank, name))
            continue
        finding = find_scene(traffic)
        if finding is not None and is_ignored(finding, name, rules):
            finding = None
        beginning = None if finding is None or communicates else so_far.beginning(name, finding)
        if beginning is not None:
            finding, state.beginnings[name] = beginning, beginning
        arises = finding is not None and finding.scene.level == "critical"
        so_far.note(traffic, begins=arises)
        if not traffic.outputs and any(end.takes for end in ends):
            so_far.note_unknown()
        if arises:
            state.arising.append(name)
        if communicates:
            gives = any(end.gives for end in ends) and _gives_anomaly(traffic, finding)
            state.nodes.append(_Node(rank, name, ends, finding, gives, state.suspects))
            state.suspects = []
        elif finding is not None and arises:
            phase = Phase.DURING if state.nodes else Phase.BEFORE
            state.suspects.append(Culprit(rank, name, finding, phase))
    return state


def _gives_anomaly(traffic: RecordIO, finding: Finding | None) -> bool:
    if finding is None or finding.scene is AnomalyKind.JUMPS:
        return False
    effects = effects_of_record(traffic.name)
    return any(not effects.is_unread(place.position) for place in finding.inputs)


def _note_missing(transfers: Transfers[_Node]) -> None:
    """Note for each record the ranks that lack their end of one of its transfers."""
    for members in transfers.values():
        present = {node.rank for node, _ in members}
        for node, end in members:
            node.missing |= end.expected - present


def _explain(transfers: Transfers[_Node]) -> dict[tuple[int, str], Source]:
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
    return node.finding is not None and node.finding.scene is AnomalyKind.ARISES


def _before(ranks: Iterable[_Rank]) -> list[Culprit]:
    """Return the first suspect of each rank before it communicates; those that are passed on come first."""
    suspects_by_order = []
    for rank in ranks:
        suspects = rank.nodes[0].suspects if rank.nodes else rank.suspects
        passes_on = bool(rank.nodes) and rank.nodes[0].gives_anomaly
        suspects_by_order += [(_comes_in(suspect), not passes_on, suspect) for suspect in _first(suspects)]
    return [suspect for *_, suspect in sorted(suspects_by_order, key=lambda entry: (*entry[:2], entry[2].rank))]


def _during(ranks: list[_Rank], transfers: Transfers[_Node]) -> list[Culprit]:
    """Return the first suspects in the order of communication, or the first communication that is one itself."""
    for nodes in in_layers([rank.nodes for rank in ranks], transfers):
        passing_on = sorted((node for node in nodes if node.suspects), key=lambda node: not node.gives_anomaly)
        culprits = sorted((one for node in passing_on for one in _first(node.suspects)), key=_comes_in)
        culprits = culprits or [
            Culprit(node.rank, node.name, node.finding, Phase.DURING, tuple(sorted(node.missing)))
            for node in nodes
            if node.finding is not None and _arises(node) and not node.is_explained
        ]
        if culprits:
            return culprits
    return []


def _after(ranks: Iterable[_Rank]) -> list[Culprit]:
    culprits = [
        Culprit(suspect.rank, suspect.name, suspect.finding, Phase.AFTER)
        for rank in ranks
        if rank.nodes
        for suspect in _first(rank.suspects)
    ]
    return sorted(culprits, key=_comes_in)


def _comes_in(suspect: Culprit) -> bool:
    """Return whether a rank may only have received what another one made, by a communication that is not recorded."""
    return suspect.finding.scene is AnomalyKind.COMES_IN


def _first(suspects: list[Culprit]) -> list[Culprit]:
    """Return the first suspect as a list.

    A module comes after the APIs within it, but for its backward record in dumps of msprobe 26.
    """
    if not suspects or direction_of(suspects[0].name) != "backward":
        return suspects[:1]
    apis = [suspect for suspect in suspects if not is_module_name(suspect.name)]
    return (apis or suspects)[:1]


@dataclass(frozen=True, slots=True)
class Origin:
    """Place where a record was made: stack frames from the innermost out, modules from the outermost in.

    ``problems`` says what of it is not known and why. ``is_of_forward`` says of a backward record that the frames are
    those of its forward call: no line of the program makes it.
    """

    frames: tuple[str, ...]
    modules: tuple[str, ...]
    problems: tuple[str, ...]
    is_of_forward: bool = False


def origin_of(surroundings: Surroundings, name: str) -> Origin:
    """Return where a record was made.

    Neither file is needed to judge a record, so a missing or a damaged one is noted and not an error.
    """
    stacks, parents = surroundings.stacks, surroundings.parents
    problems = [str(table.problem) for table in (stacks, parents) if table.problem is not None]
    frames = stacks.of_call(name)
    if stacks.problem is None and frames is None:
        problems.append(f"{STACK_FILE} does not hold {name}")
    modules = tuple(reversed(modules_around(name, parents.entries.get)))
    return Origin(frames or (), modules, tuple(problems), is_of_forward=name not in stacks.entries)


def describe_values(place: ValuePath) -> str:
    """Return what is known of a value: ``Max inf, Min -2.5``."""
    leaf = place.leaf
    if not isinstance(leaf, TensorElement):
        return f"{leaf.type} {leaf.value}"
    statistics = (
        {"Max": leaf.max, "Min": leaf.min} if leaf.max is not None or leaf.min is not None else {"Mean": leaf.mean}
    )
    return (
        ", ".join(f"{name} {number:.6g}" for name, number in statistics.items() if number is not None)
        or "no statistics"
    )


def describe_place(place: ValuePath) -> str:
    """Return one value with its path, dtype, shape and extrema."""
    leaf = place.leaf
    kind = f" {leaf.dtype} {leaf.shape}" if isinstance(leaf, TensorElement) else ""
    return f"{place.path}{kind}: {describe_values(place)}"


def describe_finding(finding: Finding) -> str:
    """Return level and scene in one line."""
    return f"{finding.scene.level}: {finding.scene.words}{growth_words(finding)}"


def growth_words(finding: Finding) -> str:
    """Return how much a norm grew, where that is what was found."""
    return f" ({finding.growth:.4g} times)" if finding.growth is not None else ""


def place_lines(places: Iterable[ValuePath]) -> Iterator[str]:
    """Yield a line for each tensor and each number, up to as many as one can read."""
    lines = [describe_place(place) for place in places if is_numeric(place.leaf)]
    yield from lines[:_PLACES_SHOWN]
    if len(lines) > _PLACES_SHOWN:
        yield f"and {len(lines) - _PLACES_SHOWN} more"


def origin_lines(origin: Origin) -> Iterator[str]:
    """Yield where a record was made: modules, then the innermost frames, then what is not known."""
    if origin.modules:
        yield f"in {' > '.join(origin.modules)}"
    shown = relevant_frames(origin.frames, _FRAMES_SHOWN)
    called = "forward called" if origin.is_of_forward else "called"
    for frame in shown:
        yield f"{called} at {' '.join(frame.removeprefix('File ').split())}"
    if len(origin.frames) > len(shown):
        yield f"and {len(origin.frames) - len(shown)} more frames in stack.json"
    for problem in origin.problems:
        yield f"({problem})"
