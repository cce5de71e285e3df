"""Communication of a step over all ranks, opened from the files of a run: messages, waits, libraries that none sees."""

from __future__ import annotations

import gc
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby, islice
from pathlib import Path
from typing import NamedTuple

from msprobe_hooks.dump.communication.collectives import BARRIERS, FROM_ROOT, TO_ROOT
from msprobe_hooks.dump.communication.jsonl import FILE, Call, RankCalls, Step, find_steps, read_calls
from msprobe_hooks.dump.reader import Dump
from msprobe_hooks.dump.recording_paths import DUMP_FILE, rank_of
from msprobe_hooks.errors import DumpError
from pytest_msprobe.extensions.communication.exchanges import Exchange, find_exchanges
from pytest_msprobe.extensions.communication.truncated_dump import ReadDump, read_truncated_dump

# The text by which a record that holds a DTensor is known.
_PLACEMENTS = b'"placements"'

_MOST_RANKS = 10**5

_SHOWN_RECORDS = 10_000
# DistributedDataParallel keeps the model in this attribute, and FSDP puts its name before that of a module's class.
_WRAPPED = "Module.module."
_FSDP = re.compile(r"\.FSDP\w*\.(forward|backward)")

# A choice: in seconds, what a busy machine does to healthy ranks.
_LEAST = 1.0

# A recording of these tasks holds some calls, and says nothing of what the others were.
_PARTIAL_TASKS = frozenset({"overflow_check", "free_benchmark", "exception_dump"})
_LEVELS_WITHOUT_CALLS = frozenset({"L0", "L2", "debug"})


def ranks_in_words(ranks: Iterable[int]) -> str:
    """Return ``rank 2`` or ``ranks 0-3, 7``."""
    numbers = sorted(set(ranks))
    # Within a run of consecutive ranks, number and place differ by the same.
    runs = [[rank for _, rank in run] for _, run in groupby(enumerate(numbers), lambda entry: entry[1] - entry[0])]
    texts = [str(run[0]) if len(run) == 1 else f"{run[0]}{', ' if len(run) == 2 else '-'}{run[-1]}" for run in runs]
    return f"rank{'s' * (len(numbers) > 1)} {', '.join(texts)}"


def short_name(call: Call) -> str:
    """Return a call's name without what all have: ``all_reduce.7``."""
    return call.name.removesuffix(".forward").partition(".")[2] or call.name


def between(exchange: Exchange) -> str:
    """Return who communicates: ``from rank 0 to rank 1, tag 3``, ``among ranks 0-3``."""
    if exchange.is_point_to_point:
        _, source, destination, tag = exchange.key
        return f"from rank {source} to rank {destination}" + (f", tag {tag}" if tag else "")
    members = exchange.expected or {call.rank for call, _ in exchange.members}
    return f"among {ranks_in_words(members)}"


def format_communication(exchange: Exchange) -> str:
    """Return a communication as a line names it: ``all_reduce.7 among ranks 0-3``."""
    return f"{short_name(exchange.lead)} {between(exchange)}"


@dataclass(frozen=True, slots=True)
class StepCommunication:
    """A step's ranks, what they said to each other, and what is missing.

    ``absent`` are ranks that there must be, and of which there is no dump; ``problems`` say by rank why only a part of
    its dump could be read. ``incomplete`` are the exchanges that a call is in and that lack a rank, by rank and place.
    ``endings`` say where the recording of each rank ended, ``takers`` are ranks that received from any rank.
    ``last_agreeing`` keeps, by the order of an exchange, the last one before it that agrees, once that is known.
    """

    step: Step
    ranks: Mapping[int, RankCalls]
    exchanges: list[Exchange]
    absent: frozenset[int] = frozenset()
    problems: Mapping[int, str] = field(default_factory=dict)
    incomplete: Mapping[tuple[int, int], list[Exchange]] = field(default_factory=dict)
    endings: Mapping[int, str] = field(default_factory=dict)
    takers: frozenset[int] = frozenset()
    last_agreeing: dict[int, Exchange | None] = field(default_factory=dict)

    def dump(self, call: Call) -> Dump:
        """Return the dump of a call's rank."""
        return self.step.ranks[call.rank]

    def state(self, rank: int) -> str:
        """Return where a rank's recording ended, as a line: ``rank 2 was in all_reduce.7 when its recording ended``."""
        return f"rank {rank} {self.endings[rank]}"


def read_step(
    step: Step, other_ranks: frozenset[int] = frozenset(), problems: Mapping[int, str] | None = None
) -> StepCommunication:
    """Collect the communication of a step; ``other_ranks`` are those that there are besides those with a dump."""
    present = frozenset(step.ranks)
    # Ranks are counted from zero, so that a gap is one that is missing; what a folder is called may be any number.
    world = present | other_ranks | frozenset(range(min(max(present, default=0), _MOST_RANKS)))
    ranks = {rank: read_calls(dump, rank, world) for rank, dump in step.ranks.items()}
    exchanges = find_exchanges(ranks.values())
    named = frozenset[int]().union(*{exchange.expected for exchange in exchanges})
    incomplete = defaultdict[tuple[int, int], list[Exchange]](list)
    for exchange in exchanges:
        if exchange.missing & present:
            for call, _ in exchange.members:
                incomplete[call.rank, call.place].append(exchange)
    problems = problems or {}
    return StepCommunication(
        step,
        ranks,
        exchanges,
        (world | named) - present,
        problems,
        incomplete,
        endings={rank: _ending(own, step.ranks[rank], problems.get(rank)) for rank, own in ranks.items()},
        takers=frozenset(rank for rank, own in ranks.items() if any(not call.ends for call in own.calls)),
    )


def alike_in_order(step: StepCommunication) -> int:
    """Return how many communications only their place distinguishes from another one of the same ranks."""
    counts = Counter(
        (exchange.key, end.operation, end.root, end.reduction, end.tensors)
        for exchange in step.exchanges
        for _, end in exchange.members[:1]
        if end.operation not in BARRIERS
    )
    return sum(count for count in counts.values() if count > 1)


def _ending(rank_calls: RankCalls, dump: Dump, problem: str | None) -> str:
    """Return where a rank's recording ended: ``was in all_reduce.7 when its recording ended``."""
    records = list(dump.records)
    inside = [call for call in rank_calls.calls if call.progress == "began"]
    if inside:
        words = f"was in {', '.join(map(short_name, inside))} when its recording ended"
    elif rank_calls.calls and rank_calls.calls[-1].progress == "raised":
        words = f"raised an exception in {short_name(rank_calls.calls[-1])}, its last communication"
    elif rank_calls.calls:
        words = f"last communicated in {short_name(rank_calls.calls[-1])}"
    else:
        words = "did not communicate"
    if not records:
        words += "; its dump has no records"
    elif not rank_calls.calls or records[-1] != rank_calls.calls[-1].name:
        words += f"; its last record is {records[-1]}"
    return f"{words} ({problem})" if problem else words


def unrecorded_lines(steps: Sequence[StepCommunication]) -> Iterator[str]:
    """Yield why the communication of a library is not among the calls, a line for each; none where all seems to be."""
    has_calls = any(step.exchanges for step in steps)
    names = list(islice(_names(steps), _SHOWN_RECORDS))
    if any(name.startswith(_WRAPPED) for name in names):
        yield (
            "not recorded: the reductions of DistributedDataParallel, which are made in C++ (the model is wrapped, "
            "Module.module); register torch's default_hooks.allreduce_hook by register_comm_hook to have them recorded"
        )
    has_tensors = _has_distributed_tensors(steps)
    if has_tensors and has_calls:
        yield "not recorded: what DTensors communicate inside of another call, as an implicit redistribution does"
    if has_calls:
        return
    if has_tensors:
        yield (
            "not recorded: what DTensors communicate inside of another call; their functional collectives are, where "
            "the recorder is the msprobe_hooks of this version"
        )
    if any(map(_FSDP.search, names)):
        yield "not recorded: the communication of FSDP; record again with the msprobe_hooks of this version"
    if all(len(step.ranks) == 1 for step in steps):
        yield "each step has the dump of one rank only; copy the dumps of all ranks into one folder"
    yield (
        "recorded are the collectives and messages of torch.distributed, functional collectives and "
        "mindspore.communication; what a library sends in C++ or in a compiled graph is in no dump"
    )


def _names(steps: Sequence[StepCommunication]) -> Iterator[str]:
    for step in steps:
        for dump in step.step.ranks.values():
            yield from dump.records


def _has_distributed_tensors(steps: Sequence[StepCommunication]) -> bool:
    first = next((dump for step in steps for dump in step.step.ranks.values()), None)
    return first is not None and any(_PLACEMENTS in bytes(raw) for raw in first.records.values())


class Wait(NamedTuple):
    """Time that a rank's call was ahead of that of the rank it needs, in seconds."""

    seconds: float
    call: Call
    late: Call
    exchange: Exchange
    step: StepCommunication


def longest_wait(steps: Iterable[StepCommunication]) -> Iterator[str]:
    """Yield a line on the longest wait of all steps; none where the times are not recorded or no rank waited long."""
    totals = defaultdict[tuple[int, int], float](float)
    longest: Wait | None = None
    for step in steps:
        for wait in waits_of(step):
            totals[wait.call.rank, wait.late.rank] += wait.seconds
            if longest is None or wait.seconds > longest.seconds:
                longest = wait
    if longest is None or longest.seconds < _LEAST:
        return
    ahead, late = longest.call, longest.late
    line = (
        f"longest wait: rank {ahead.rank} for rank {late.rank}, which began "
        f"{format_communication(longest.exchange)} {_seconds(longest.seconds)} later"
    )
    total = totals[ahead.rank, late.rank]
    if total - longest.seconds >= _LEAST:
        line += f", {_seconds(total)} in all communications"
    if ahead.lasted is not None and ahead.lasted < longest.seconds / 2:
        # On a card the call returns at once; between hosts the clocks may differ.
        line += f"; its own call returned after {_seconds(ahead.lasted)}"
    yield line


def waits_of(step: StepCommunication) -> Iterator[Wait]:
    """Yield every wait of a step: a call that was ahead of the one that it needs."""
    for exchange in step.exchanges:
        timed = [call for call, _ in exchange.members if call.began is not None]
        for call, late in _needs(exchange, timed):
            seconds = (late.began or 0.0) - (call.began or 0.0)
            if 0 < seconds < math.inf:
                yield Wait(seconds, call, late, exchange, step)


def _needs(exchange: Exchange, timed: Sequence[Call]) -> Iterator[tuple[Call, Call]]:
    """Yield calls of ranks that wait in a communication, each with the last call that it waits for."""
    if len(timed) < 2:
        return
    first = exchange.members[0][1]
    giving = {call.rank for call, end in exchange.members if end.gives}
    last = max(timed, key=lambda call: call.began or 0.0)
    if exchange.is_point_to_point:
        needed, waiting = [call for call in timed if call.rank in giving], timed
    elif first.operation in FROM_ROOT:
        needed, waiting = [call for call in timed if call.rank == first.root], timed
    elif first.operation in TO_ROOT:
        needed, waiting = [last], [call for call in timed if call.rank == first.root]
    else:
        needed, waiting = [last], timed
    for late in needed[:1]:
        yield from ((call, late) for call in waiting if call is not late)


def _seconds(seconds: float) -> str:
    return f"{seconds:.3g} s"


@dataclass(frozen=True, slots=True)
class Opened:
    """The steps of a run, and of each dump the step and the rank. ``others`` are dumps that were not named."""

    steps: list[StepCommunication]
    places: Mapping[Path, tuple[StepCommunication, int]]
    others: list[Path]

    def unnamed_files(self) -> list[Path]:
        """Return the files that the verdicts depend on besides the named dumps."""
        lines = (path.parent / FILE for path in self.places)
        return [*self.others, *(path for path in lines if path.is_file())]


def open_steps(named: Mapping[Path, ReadDump]) -> Opened:
    """Read the other ranks of the named dumps' steps and bring their communication together.

    Raises DumpError where no communication was recorded, or not all of it.
    """
    others = {path: read_truncated_dump(path) for path in _siblings(named)}
    dumps = {**named, **others}
    _require_communication(dumps)
    ranks = _ranks_by_run(dumps)
    opened = []
    with _without_collections():
        for step in find_steps(read.dump for read in dumps.values()):
            problems = {rank: dumps[dump.path].problem for rank, dump in step.ranks.items() if dumps[dump.path].problem}
            opened.append(read_step(step, ranks.get(step.folder.parent, frozenset()), problems))
    places = {dump.path: (step, rank) for step in opened for rank, dump in step.step.ranks.items()}
    return Opened(opened, places, list(others))


@contextmanager
def _without_collections() -> Iterator[None]:
    """Make objects that stay: looking for garbage among millions of them takes a quarter of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()


def _siblings(named: Iterable[Path]) -> Iterator[Path]:
    paths = set(named)
    for folder in sorted({path.parent.parent for path in paths if _is_of_rank(path)}):
        yield from (path for path in sorted(folder.glob(f"rank*/{DUMP_FILE}")) if path not in paths)


def _is_of_rank(path: Path) -> bool:
    return path.name == DUMP_FILE and rank_of(path.parent) is not None


def _ranks_by_run(dumps: Iterable[Path]) -> dict[Path, frozenset[int]]:
    """Return the ranks of the named steps by the folder of the run: who recorded one step is a rank of the others."""
    ranks_of: dict[Path, frozenset[int]] = {}
    for folder in {path.parent.parent for path in dumps if _is_of_rank(path)}:
        ranks = frozenset(rank for path in folder.iterdir() if (rank := rank_of(path)) is not None)
        ranks_of[folder.parent] = ranks_of.get(folder.parent, frozenset()) | ranks
    return ranks_of


def _require_communication(dumps: Mapping[Path, ReadDump]) -> None:
    for path, read in dumps.items():
        if read.dump.task in _PARTIAL_TASKS:
            raise DumpError(
                f"{path}: task {read.dump.task} records some calls only, so that partners are unknown; record with "
                "task statistics or tensor"
            )
        if read.dump.level in _LEVELS_WITHOUT_CALLS:
            raise DumpError(f"{path}: level {read.dump.level} records no communication; record with level L1 or mix")
