"""``communication.jsonl`` next to a dump: times of communications, calls per rank, partners of a step.

A record is in ``dump.json`` once its call is over, and that is written in blocks; of a rank that was killed or
hangs these lines show what it was in. A line of a call that begins is its record without values, so that its partners
can be found. Readers of dumps ignore the file, and a dump is whole without it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from msprobe_hooks.dump.communication.collectives import BARRIERS, FROM_ROOT, NEVER_WAITED_FOR, TO_ROOT, is_fused
from msprobe_hooks.dump.communication.endpoints import Communication, End, ends_of, is_outside, match_transfers
from msprobe_hooks.dump.names import is_communication, parse_api_name
from msprobe_hooks.dump.reader import Dump
from msprobe_hooks.dump.recording_paths import rank_of
from msprobe_hooks.dump.schema import forward_record
from msprobe_hooks.dump.writer import JsonLines
from msprobe_hooks.errors import DumpError, RecordError
from msprobe_hooks.json_decoding import read_json_lines

FILE: Final = "communication.jsonl"

#: A call begins; it has returned a handle that must be waited for; it is over; it raised an exception.
Event = Literal["began", "launched", "ended", "raised"]


class Line(msgspec.Struct, frozen=True, omit_defaults=True):
    """Event of a call, by the name of its record; ``time`` is in seconds since 1970.

    Where a call began there are its arguments, as in a record but for the values of tensors.
    """

    event: Event
    record: str
    time: float
    input_args: list[Any] = []
    input_kwargs: dict[str, Any] = {}

    @property
    def body(self) -> dict[str, Any]:
        """The record of a call that began, as far as it is known."""
        return {"input_args": self.input_args, "input_kwargs": self.input_kwargs}


class CommunicationLines(JsonLines):
    """The file of one step and rank while it is written."""

    def __init__(self, folder: Path) -> None:
        """``folder`` is the dump's."""
        super().__init__(folder / FILE)


def read_lines(folder: Path) -> list[Line]:
    """Return the lines of ``communication.jsonl`` in their order, none where there is no file.

    The last line of a process that was killed may be incomplete and is left out. Raises DumpError for any other that
    cannot be read, since a call that never returned may be in it.
    """
    lines, problems = read_json_lines(folder / FILE, Line)
    if problems:
        raise DumpError(f"{problems[0]}; copy the file again, or remove it to judge without hangs and waits")
    return lines


@dataclass(frozen=True, slots=True)
class Step:
    """The dumps of one step by rank, in the order of the ranks. ``folder`` is what they have in common."""

    folder: Path
    ranks: dict[int, Dump]


def find_steps(dumps: Iterable[Dump]) -> list[Step]:
    """Group dumps in folders named ``rank<N>`` by the folder around them.

    A rank without a number is rank 0. A dump in any other folder, such as ``proc<pid>``, does not show its rank: it is
    a step of its own, with rank 0, as is a second dump for a rank.
    """
    steps: dict[Path, dict[int, Dump]] = {}
    for dump in dumps:
        folder = dump.path.parent
        rank = rank_of(folder)
        is_first = rank is not None and rank not in steps.get(folder.parent, {})
        steps.setdefault(folder.parent if is_first else folder, {})[rank or 0] = dump
    return [Step(folder, dict(sorted(ranks.items()))) for folder, ranks in steps.items()]


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
    times: dict[str, tuple[float, float | None]] = {}
    for line in lines:
        if line.event == "began" and line.record not in launched:
            times.setdefault(line.record, (line.time, None))
        elif line.event == "ended" and line.record in times:
            began = times[line.record][0]
            times[line.record] = (began, line.time - began)
    return times


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
        lined = [record for name in ("", *began) for record in (name, *behind[name]) if record]
        listed = set(lined)
        return [*lined, *(name for name in recorded if name not in listed)]
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
    partners = defaultdict[tuple[int, str], list[Partners]](list)
    for members in match_transfers(ranks).values():
        present = [(call, end) for call, end in members if call.is_recorded]
        for call, end in present:
            others = {other.rank: other.name for other, theirs in present if _exchange(end, theirs, call.rank, other)}
            if others and end.operation not in BARRIERS:
                partners[call.rank, call.name].append(Partners(_direction(end, call.rank), others))
    return dict(partners)


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
