"""Error map of a tensor, as data: a small grid of levels, a histogram and the worst elements.

A level is one character, so that a map is a few short lines of a journal: how much of what an element may err the worst
of its block uses up, in quarters of a decade.
"""

from __future__ import annotations

import math
from typing import Literal

import msgspec

#: A block without an element, which only the end of a tensor that is cut into lines leaves.
NO_ELEMENT = " "
#: A block with a NaN or inf where golden has another value, or the other way round.
NOT_FINITE = "!"
#: All other levels by rank: 0 is no error at all.
LEVELS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
#: The rank of what uses up exactly all that is allowed; whatever has a higher one is wrong.
LIMIT_RANK = 17
_STEPS_PER_DECADE = 4

#: The upper ends of a histogram's bins in units of the last place; two more are for what is beyond, and not finite.
BINS = (0.0, 0.5, 1.0, 2.0, 4.0, 16.0, 64.0, 256.0, 1024.0, 2.0**14, 2.0**20)


def level_of(share: float) -> str:
    """Return the level of an error by the share of what is allowed that it uses up; NaN and inf are not finite."""
    if not math.isfinite(share):
        return NOT_FINITE
    if share <= 0:
        return LEVELS[0]
    rank = LIMIT_RANK + math.ceil(_STEPS_PER_DECADE * math.log10(share))
    return LEVELS[min(max(rank, 1), len(LEVELS) - 1)]


def decades_over(level: str) -> int:
    """Return the decades, begun or whole, by which a finite level is over the limit; 0 for what is within it."""
    return max(0, math.ceil((LEVELS.index(level) - LIMIT_RANK) / _STEPS_PER_DECADE))


def worse(one: str, other: str) -> str:
    """Return the worse of two levels."""
    return max(one, other, key=_rank)


def _rank(level: str) -> int:
    return -1 if level == NO_ELEMENT else len(LEVELS) if level == NOT_FINITE else LEVELS.index(level)


class WorstElement(msgspec.Struct, frozen=True):
    """One of the elements that err most: its values as text, since NaN and inf have no number in JSON.

    ``baseline`` is empty where none was made.
    """

    index: tuple[int, ...]
    target: str
    golden: str
    baseline: str = ""


class ErrorMap(msgspec.Struct, frozen=True):
    """A tensor against golden, folded to two dimensions and cut into blocks; each block shows its worst element.

    ``rows`` and ``columns`` are those of the folded tensor: the dimensions of ``shape`` before ``split`` are its rows;
    a ``split`` of None says that its elements were cut into lines of ``columns``. A block has up to ``block`` rows and
    columns. ``lines`` have a level for each block. ``allowed`` says in words how much an element may err, ``unit`` what
    the bins of the histogram count. ``wrong`` elements err more than that, and lie between the first and last index of
    ``extent`` along each dimension. ``histogram`` and ``baseline_histogram`` count elements by `BINS`.
    """

    shape: tuple[int, ...]
    rows: int
    columns: int
    split: int | None
    block: tuple[int, int]
    lines: tuple[str, ...]
    allowed: str
    unit: Literal["ULP", "1"]
    wrong: int
    extent: tuple[tuple[int, int], ...]
    histogram: tuple[int, ...]
    worst: tuple[WorstElement, ...]
    baseline_histogram: tuple[int, ...] = ()

    @property
    def place(self) -> str:
        """The range that holds all wrong elements, as an index of Python; empty where that is all."""
        parts = [_index(extent, size) for extent, size in zip(self.extent, self.shape, strict=False)]
        return f"[{', '.join(parts)}]" if set(parts) - {":"} else ""


def _index(extent: tuple[int, int], size: int) -> str:
    first, last = extent
    if first == last:
        return str(first)
    return ":" if (first, last) == (0, size - 1) else f"{first}:{last + 1}"
