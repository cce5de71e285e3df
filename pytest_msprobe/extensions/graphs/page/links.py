"""Which communication calls of several ranks belong together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msprobe_hooks.dump.communication.calls import find_partners
from msprobe_hooks.dump.communication.ranks import find_steps
from msprobe_hooks.dump.reader import Dump

#: A record, the number of another dump, and the record there.
Link = tuple[str, int, str]


def communication_links(dumps: Sequence[Dump]) -> list[list[Link]]:
    """Return, for each dump, the partner of each communication record on the next rank that has one.

    One each: following them visits every rank that took part, and links of all ranks with all would outnumber the rest.
    """
    places = {dump.path: place for place, dump in enumerate(dumps)}
    links: list[list[Link]] = [[] for _ in dumps]
    for step in find_steps(dumps):
        for (rank, name), partners in find_partners(step).items():
            for partner in partners:
                other = _next(rank, partner.records)
                links[places[step.ranks[rank].path]].append(
                    (name, places[step.ranks[other].path], partner.records[other])
                )
    return links


def _next(rank: int, others: Mapping[int, str]) -> int:
    return min(others, key=lambda other: (other < rank, other))
