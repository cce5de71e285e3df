"""What is known of the communication of a step, over all its ranks."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from msprobe_hooks.dump.communication.calls import Call, RankCalls, read_calls
from msprobe_hooks.dump.communication.collectives import BARRIERS
from msprobe_hooks.dump.communication.exchanges import Exchange, find_exchanges
from msprobe_hooks.dump.communication.ranks import Step
from msprobe_hooks.dump.reader import Dump
from pytest_msprobe.extensions.communication.messages import short_name

_MOST_RANKS = 10**5


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
    step: Step, known: frozenset[int] = frozenset(), problems: Mapping[int, str] | None = None
) -> StepCommunication:
    """Bring the communication of a step together; ``known`` are ranks that there are besides those with a dump."""
    present = frozenset(step.ranks)
    # Ranks are counted from zero, so that a gap is one that is missing; what a folder is called may be any number.
    world = present | known | frozenset(range(min(max(present, default=0), _MOST_RANKS)))
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


def _ending(known: RankCalls, dump: Dump, problem: str | None) -> str:
    """Return where a rank's recording ended: ``was in all_reduce.7 when its recording ended``."""
    records = list(dump.records)
    inside = [call for call in known.calls if call.progress == "began"]
    if inside:
        words = f"was in {', '.join(map(short_name, inside))} when its recording ended"
    elif known.calls and known.calls[-1].progress == "raised":
        words = f"raised an exception in {short_name(known.calls[-1])}, its last communication"
    elif known.calls:
        words = f"last communicated in {short_name(known.calls[-1])}"
    else:
        words = "did not communicate"
    if not records:
        words += "; its dump has no records"
    elif not known.calls or records[-1] != known.calls[-1].name:
        words += f"; its last record is {records[-1]}"
    return f"{words} ({problem})" if problem else words
