"""Calls that stand in for each other: another function at the same place, as tanh where the other run has relu."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence


def alone_between_partners(
    target: Sequence[str], golden: Sequence[str], partners: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    """Yield a call of each run where neither has a partner and both neighbours of one are those of the other.

    ``target`` and ``golden`` are calls in their order; ``partners`` gives the golden one of each of the target's.
    """
    place_of = {name: place for place, name in enumerate(golden)}
    taken = {*partners.values()}
    for i, name in enumerate(target):
        if name in partners or i == 0:
            continue
        before = place_of.get(partners.get(target[i - 1], ""))
        if before is None or before + 1 >= len(golden) or golden[before + 1] in taken:
            continue
        following = [partners.get(one) for one in target[i + 1 : i + 2]]
        if following == [*golden[before + 2 : before + 3]]:
            yield name, golden[before + 1]
