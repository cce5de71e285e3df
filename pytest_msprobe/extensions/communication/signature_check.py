"""Check of a communication's signatures: the same call on all ranks, in time, with tensors and splits that fit."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from msprobe_hooks.dump.communication.collectives import Communicated, read_communicated
from msprobe_hooks.dump.communication.endpoints import End
from msprobe_hooks.dump.communication.jsonl import Call
from msprobe_hooks.dump.schema import Element, TensorElement, ValueElement
from pytest_msprobe.extensions.communication.exchanges import Exchange
from pytest_msprobe.extensions.communication.messages import StepCommunication, between, ranks_in_words, short_name

# So many calls behind the last in a group are searched for the one that a rank made in place of a missing call.
_LOOKED_AHEAD = 100


_NOT_ENDED = {"raised": "raised an exception in it", "began": "did not return from it"}


_WITH_SPLITS = "all_to_all_single"


@dataclass(frozen=True, slots=True)
class Finding:
    """Fault of a communication, in words, and the ranks that it is wrong on; none where no rank is odd."""

    words: str
    ranks: frozenset[int] = frozenset()


def structural_findings(exchange: Exchange, step: StepCommunication) -> Iterator[Finding]:
    """Yield what is wrong with who took part, with what was asked for, and when."""
    missing = exchange.missing & step.ranks.keys()
    yield from _absences(exchange, missing, step)
    yield from _disagreements(exchange)
    if exchange.out_of_order and not missing:
        yield _disorder(exchange, step)
    yield from _not_ended(exchange)


def split_finding(exchange: Exchange, step: StepCommunication) -> Finding | None:
    """Return the first part that is given in another size than it is taken in, by rows; None where all fit.

    Raises RecordError where a record is malformed.
    """
    if any(end.operation != _WITH_SPLITS or not call.is_recorded for call, end in exchange.members):
        return None
    communicated = {call.rank: read_communicated(step.dump(call).forward(call.name)) for call, _ in exchange.members}
    ranks = sorted(exchange.expected or communicated)
    sent = _sizes(communicated, "input", len(ranks))
    received = _sizes(communicated, "output", len(ranks))
    for here, source in enumerate(ranks):
        for there, target in enumerate(ranks):
            gives, takes = sent.get(source, {}).get(there), received.get(target, {}).get(here)
            if gives is not None and takes is not None and gives != takes:
                words = f"rank {source} gives {gives} rows to rank {target}, which takes {takes}"
                return Finding(f"split sizes differ: {words}")
    return None


def differing(what: str, values: Mapping[int, str]) -> Finding | None:
    """Return in words which ranks have which value where they differ, what is rare first; None where they do not."""
    clusters = _clusters(values)
    if len(clusters) < 2:
        return None
    differing_values = "; ".join(f"{ranks_in_words(ranks)}: {value}" for value, ranks in reversed(clusters))
    return Finding(f"{what} differs: {differing_values}", _odd_ranks(values))


def _odd_ranks(values: Mapping[int, str]) -> frozenset[int]:
    """Return the ranks that differ from most; none where no value is that of most."""
    clusters = _clusters(values)
    if len(clusters) < 2 or 2 * len(clusters[0][1]) <= len(values):
        return frozenset()
    return frozenset(rank for _, ranks in clusters[1:] for rank in ranks)


def _clusters(values: Mapping[int, str]) -> list[tuple[str, list[int]]]:
    """Return each value with its ranks, the most common one first."""
    clusters = defaultdict[str, list[int]](list)
    for rank, value in values.items():
        clusters[value].append(rank)
    return sorted(clusters.items(), key=lambda entry: (-len(entry[1]), entry[1]))


def _absences(exchange: Exchange, missing: frozenset[int], step: StepCommunication) -> Iterator[Finding]:
    """Yield which ranks lack the call, and what they did in its place."""
    if not exchange.is_point_to_point and len(missing) > len(exchange.members):
        callers = frozenset(call.rank for call, _ in exchange.members)
        yield Finding(f"only {ranks_in_words(callers)} made this call", callers)
        return
    what = "call" if not exchange.is_point_to_point else "receive" if exchange.members[0][1].gives else "send"
    for place, ranks in _clusters({rank: _instead(exchange, rank, step) for rank in sorted(missing)}):
        have, they = ("has", "it") if len(ranks) == 1 else ("have", "each")
        yield Finding(f"{ranks_in_words(ranks)} {have} no such {what}; {they} {place}", frozenset(ranks))


def _instead(exchange: Exchange, rank: int, step: StepCommunication) -> str:
    """Return what a rank did in place of a call that it lacks."""
    calls = step.ranks[rank].calls
    before = exchange.behind[rank]
    behind = calls[before + 1 : before + 1 + _LOOKED_AHEAD]
    if not behind:
        return step.endings[rank]
    for call in behind:
        others = [other for other in step.incomplete.get((rank, call.place), ()) if other is not exchange]
        if others:
            return f"called {short_name(call)} {between(others[0])}"
        if any(end.key == exchange.key for end in call.ends):
            return f"began with {short_name(call)}" if before < 0 else _went(calls[before], behind[0])
    if len(calls) > before + 1 + _LOOKED_AHEAD:
        return f"began with {short_name(behind[0])}" if before < 0 else _went(calls[before], behind[0])
    # It communicated with others only until its recording ended.
    return step.endings[rank] if before < 0 else f"{_went(calls[before], behind[0])} and {step.endings[rank]}"


def _went(before: Call, after: Call) -> str:
    return f"went from {short_name(before)} to {short_name(after)}"


def _disagreements(exchange: Exchange) -> Iterator[Finding]:
    ends = {call.rank: end for call, end in exchange.members}
    operations = differing("operation", _known(ends, lambda end: end.operation))
    if operations is not None:
        # Of different operations nothing else can be compared.
        yield operations
        return
    for what, value in _SHARED.items():
        finding = differing(what, _known(ends, value))
        if finding is not None:
            yield finding


def _known(ends: Mapping[int, End], value: Callable[[End], str | None]) -> dict[int, str]:
    """Return by rank what ends say, those left out that do not say it."""
    values = {rank: value(end) for rank, end in ends.items()}
    return {rank: text for rank, text in values.items() if text is not None}


def _dtypes(end: End) -> str | None:
    return None if end.tensors is None else ", ".join(dict.fromkeys(dtype for dtype, _ in end.tensors))


def _shapes(end: End) -> str | None:
    return None if end.tensors is None else ", ".join(str(shape) for _, shape in end.tensors)


# What all ranks of a communication must have alike.
_SHARED: Mapping[str, Callable[[End], str | None]] = {
    "root": lambda end: None if end.root is None else str(end.root),
    "reduction": lambda end: end.reduction,
    "dtype": _dtypes,
    "shape": _shapes,
}


def _disorder(exchange: Exchange, step: StepCommunication) -> Finding:
    """Return behind which of its calls each rank made this one."""
    behind = {call.rank: _call_before(exchange, call, step) for call, _ in exchange.members}
    difference = differing("order", {rank: f"after {name}" if name else "first" for rank, name in behind.items()})
    return Finding(difference.words if difference else "order differs", frozenset(exchange.out_of_order))


def _call_before(exchange: Exchange, call: Call, step: StepCommunication) -> str:
    calls = step.ranks[call.rank].calls
    earlier = (calls[place] for place in reversed(range(call.place)))
    return next((short_name(own) for own in earlier if any(end.key == exchange.key for end in own.ends)), "")


def _not_ended(exchange: Exchange) -> Iterator[Finding]:
    """Yield who raised in a call, and who was in it when the recording ended."""
    by_progress = defaultdict[str, list[int]](list)
    for call, _ in exchange.members:
        by_progress[call.progress].append(call.rank)
    for progress, words in _NOT_ENDED.items():
        ranks = by_progress[progress]
        if ranks:
            is_odd = 2 * len(ranks) < len(exchange.members)
            yield Finding(f"{ranks_in_words(ranks)} {words}", frozenset(ranks if is_odd else ()))


def _sizes(communicated: Mapping[int, Communicated], side: str, count: int) -> dict[int, dict[int, int]]:
    """Return by rank how many rows it gives to, or takes from, each rank of the group, by place."""
    sizes_by_rank = {}
    for rank, own in communicated.items():
        recorded = own.before.get(f"{side}_split_sizes")
        sizes = _listed(recorded) if recorded else _even(own.either.get(side), count)
        if len(sizes) == count:
            sizes_by_rank[rank] = dict(enumerate(sizes))
    return sizes_by_rank


def _listed(element: Element) -> list[int]:
    values = [entry.value for entry in element if isinstance(entry, ValueElement)] if isinstance(element, list) else []
    return [value for value in values if type(value) is int]


def _even(element: Element, count: int) -> list[int]:
    """Return the sizes of a tensor that is split evenly, which it is where no sizes are given."""
    if not isinstance(element, TensorElement) or not element.shape:
        return []
    return [element.shape[0] // count] * count
