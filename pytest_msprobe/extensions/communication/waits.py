"""Who waited longest for whom, by the times in ``communication.jsonl``."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from msprobe_hooks.dump.communication.calls import Call
from msprobe_hooks.dump.communication.collectives import FROM_ROOT, TO_ROOT
from msprobe_hooks.dump.communication.exchanges import Exchange
from pytest_msprobe.extensions.communication.messages import format_communication
from pytest_msprobe.extensions.communication.steps import StepCommunication

# A choice: in seconds, what a busy machine does to healthy ranks.
_LEAST = 1.0


class Wait(NamedTuple):
    """How long a rank's call was ahead of that of the rank it needs, in seconds."""

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
