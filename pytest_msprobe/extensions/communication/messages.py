"""Ranks and communications, put into words."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from msprobe_hooks.dump.communication.calls import Call
from msprobe_hooks.dump.communication.exchanges import Exchange


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
