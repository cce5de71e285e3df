"""The communication of a rank, in the order in which it began, and the partners of each record on other ranks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from msprobe_hooks.dump.communication.collectives import BARRIERS, FROM_ROOT, NEVER_WAITED_FOR, TO_ROOT
from msprobe_hooks.dump.communication.endpoints import End, ends_of, is_outside
from msprobe_hooks.dump.communication.fused import is_fused
from msprobe_hooks.dump.communication.jsonl import Line, read_lines
from msprobe_hooks.dump.communication.ranks import Step
from msprobe_hooks.dump.communication.transfers import Communication, match_transfers
from msprobe_hooks.dump.names import is_communication, parse_api_name
from msprobe_hooks.dump.reader import Dump
from msprobe_hooks.dump.schema import forward_record
from msprobe_hooks.errors import RecordError

#: How far a call came: it is over, it raised, it returned a handle that was never waited for, it did not return.
Progress = Literal["ended", "raised", "launched", "began"]


@dataclass(slots=True)
class Call(Communication):
    """A communication of one rank, the ``place``-th that it began.

    ``is_recorded``: the dump has its record, and not only its lines in ``communication.jsonl``. By these lines it
    ``began``, in seconds since 1970, and ``lasted`` so many seconds; None where they do not say it, and of a call that
    returned a handle, in which no rank waits.
    """

    progress: Progress = "ended"
    is_recorded: bool = True
    place: int = 0
    began: float | None = None
    lasted: float | None = None


@dataclass(frozen=True, slots=True)
class RankCalls:
    """All communication of a rank in the order in which it began; ``malformed`` are records that were left out."""

    rank: int
    calls: list[Call] = field(default_factory=list)
    malformed: tuple[str, ...] = ()


def read_calls(dump: Dump, rank: int, world: frozenset[int]) -> RankCalls:
    """Read all communication of one rank; ``world`` are the ranks whose dumps there are.

    A call in a group of which the rank is not a member does not count. Raises DumpError where ``communication.jsonl``
    cannot be read.
    """
    lines = read_lines(dump.path.parent)
    began = {line.record: line for line in lines if line.event == "began" and is_communication(line.record)}
    reached: dict[str, Progress] = {line.record: line.event for line in lines}
    times = _times(lines)
    calls, malformed = list[Call](), list[str]()
    for name in _in_order([name for name in dump.records if is_communication(name) or is_fused(name)], began):
        try:
            record = dump.forward(name) if name in dump.records else forward_record(name, began[name].body)
            ends = ends_of(record, rank, world)
            if not ends and is_outside(record):
                continue
        except (RecordError, ValueError):
            malformed.append(name)
            continue
        progress = reached.get(name) or _progress(record.exception)
        began_at, lasted = times.get(name, (None, None))
        calls.append(Call(rank, name, ends, progress, name in dump.records, len(calls), began_at, lasted))
    return RankCalls(rank, calls, tuple(malformed))


def _times(lines: Sequence[Line]) -> dict[str, tuple[float, float | None]]:
    """Return when calls began and how long they lasted, but of those that returned a handle."""
    launched = {line.record for line in lines if line.event == "launched"}
    found: dict[str, tuple[float, float | None]] = {}
    for line in lines:
        if line.event == "began" and line.record not in launched:
            found.setdefault(line.record, (line.time, None))
        elif line.event == "ended" and line.record in found:
            began = found[line.record][0]
            found[line.record] = (began, line.time - began)
    return found


def _progress(exception: str | None) -> Progress:
    if exception is None:
        return "ended"
    return "launched" if exception == NEVER_WAITED_FOR else "raised"


def _in_order(recorded: list[str], began: Mapping[str, Line]) -> list[str]:
    """Return the names of records in the order in which their calls began.

    A record is written when its call is over, so that asynchronous ones stand behind what they overlapped with. Without
    lines only the calls of one function are known to have begun in the order of their numbers. Calls that compute too
    have no lines: each goes behind the call whose record is before its own.
    """
    if began:
        behind, last = defaultdict[str, list[str]](list), ""
        for name in recorded:
            if is_fused(name):
                behind[last].append(name)
            elif name in began:
                last = name
        lined = [each for name in ("", *began) for each in (name, *behind[name]) if each]
        known = set(lined)
        return [*lined, *(name for name in recorded if name not in known)]
    by_function = defaultdict[str, list[str]](list)
    for name in recorded:
        by_function[_function(name)].append(name)
    in_turn = {function: iter(sorted(names, key=_number)) for function, names in by_function.items()}
    return [next(in_turn[_function(name)]) for name in recorded]


def _function(name: str) -> str:
    return name.rpartition(".")[0].rpartition(".")[0]


def _number(name: str) -> int:
    try:
        return parse_api_name(name).call
    except ValueError:
        return 0


@dataclass(frozen=True, slots=True)
class Partners:
    """The records on other ranks that a communication record exchanges values with, by rank, and in which direction."""

    direction: Literal["send", "receive", "send_receive"]
    records: Mapping[int, str]


def find_partners(step: Step) -> dict[tuple[int, str], list[Partners]]:
    """Return the partners of each communication record of a step, by rank and name, as `match_partners` does."""
    world = frozenset(step.ranks)
    return match_partners([read_calls(dump, rank, world).calls for rank, dump in step.ranks.items()])


def match_partners(ranks: Iterable[Sequence[Call]]) -> dict[tuple[int, str], list[Partners]]:
    """Return the partners of each communication record, by rank and name, of the calls of each rank.

    A batch of sends and receives has several. A collective with a root pairs the root with all others; a record
    without a partner among these has none.
    """
    found = defaultdict[tuple[int, str], list[Partners]](list)
    for members in match_transfers(ranks).values():
        present = [(call, end) for call, end in members if call.is_recorded]
        for call, end in present:
            others = {other.rank: other.name for other, theirs in present if _exchange(end, theirs, call.rank, other)}
            if others and end.operation not in BARRIERS:
                found[call.rank, call.name].append(Partners(_direction(end, call.rank), others))
    return dict(found)


def _exchange(end: End, theirs: End, rank: int, other: Call) -> bool:
    if other.rank == rank:
        return False
    return end.root is None or rank == end.root or other.rank == theirs.root


def _direction(end: End, rank: int) -> Literal["send", "receive", "send_receive"]:
    if end.is_point_to_point:
        return "send" if end.gives else "receive"
    if end.operation in FROM_ROOT:
        return "send" if rank == end.root else "receive"
    if end.operation in TO_ROOT:
        return "receive" if rank == end.root else "send"
    return "send_receive"
