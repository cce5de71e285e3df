"""Calls of random functions on both sides, brought together by their stacks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import SequenceMatcher
from functools import lru_cache
from pathlib import PurePosixPath

from msprobe_hooks.escaping import numbered
from msprobe_hooks.extensions.environment.start_file import RandomCalls
from pytest_msprobe.extensions.environment.facts import Facts

# As msprobe: a frame is the same where file name, function and line of code agree so much on average.
_SAME = 0.8
_FRAME = re.compile(r"File (?P<file>.*?), line (?P<line>\d+), in (?P<function>[^,]*), ?(?P<code>.*)", re.DOTALL)


def pair_random(target: Facts, golden: Facts) -> Iterator[tuple[str, RandomCalls | None, RandomCalls | None]]:
    """Yield a name and the calls of both sides, None where one did not make them.

    Only functions count that both sides watched. Equal stacks meet first, then those that are as alike as msprobe asks.
    """
    ours, theirs = target.random or {}, golden.random or {}
    watched = target.watched & golden.watched
    names: list[str] = []
    matched: list[tuple[RandomCalls | None, RandomCalls | None]] = []
    for function in dict.fromkeys([*ours, *theirs]):
        if function not in watched:
            continue
        for mine, its in _matched(ours.get(function, []), theirs.get(function, [])):
            one = mine or its
            assert one is not None
            names.append(f"{function}@{_place(one)}")
            matched.append((mine, its))
    for name, (mine, its) in zip(numbered(names), matched, strict=True):
        yield name, mine, its


def _matched(
    ours: list[RandomCalls], theirs: list[RandomCalls]
) -> Iterator[tuple[RandomCalls | None, RandomCalls | None]]:
    partners: dict[int, RandomCalls] = {}
    left = list(theirs)
    for is_same in (_are_equal, _are_alike):
        for place, mine in enumerate(ours):
            its = next((one for one in left if is_same(mine, one)), None) if place not in partners else None
            if its is not None:
                partners[place] = its
                left.remove(its)
    yield from ((mine, partners.get(place)) for place, mine in enumerate(ours))
    yield from ((None, its) for its in left)


def _are_equal(mine: RandomCalls, its: RandomCalls) -> bool:
    return mine.stack == its.stack


def _are_alike(mine: RandomCalls, its: RandomCalls) -> bool:
    return len(mine.stack) == len(its.stack) and all(map(_is_same_frame, reversed(mine.stack), reversed(its.stack)))


@lru_cache(maxsize=1 << 14)
def _is_same_frame(mine: str, its: str) -> bool:
    ours, theirs = _FRAME.fullmatch(mine), _FRAME.fullmatch(its)
    if ours is None or theirs is None:
        return mine == its
    names = [PurePosixPath(found["file"]).name for found in (ours, theirs)]
    share = (names[0] == names[1]) + (ours["function"] == theirs["function"])
    return (share + SequenceMatcher(None, ours["code"], theirs["code"]).ratio()) / 3 >= _SAME


def _place(calls: RandomCalls) -> str:
    """Return file and line of the innermost frame."""
    match = _FRAME.fullmatch(calls.stack[-1]) if calls.stack else None
    return f"{PurePosixPath(match['file']).name}:{match['line']}" if match else "unknown"
