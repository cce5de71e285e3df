"""Many small texts of bytes that resemble each other, compressed some dozens at a time."""

from __future__ import annotations

import zlib
from array import array
from collections import defaultdict
from collections.abc import Iterator
from functools import lru_cache
from itertools import accumulate

_BLOCK = 64  # texts, a choice: of two kilobytes each, 128 KiB are unpacked for one
# Fast, and nearly as small as any: what repeats is near.
_LEVEL = 1
_NONE = -1
# A choice: results of several workers take turns, and each fills blocks of its own.
_OPEN_BLOCKS = 16


class PackedBlocks:
    """Texts by two numbers, of which the second ones are dense.

    After texts at (0, 0), (0, 1) and (1, 2), if a block had two::

        _places   {0: [0, 1], 1: [-1, -1, 2]}      the number of each text, by pair and order
        _blocks   [zlib(text 0, text 1)]           _ends  [[31, 64]]: where each text of a block ends
        _waiting  [text 2]                         for the next block to be full
    """

    def __init__(self) -> None:
        self._places: defaultdict[int, array[int]] = defaultdict(lambda: array("l"))
        self._blocks: list[bytes] = []
        self._ends: list[array[int]] = []
        self._waiting: list[bytes] = []
        self._count = 0
        self._opened = lru_cache(_OPEN_BLOCKS)(self._open)

    def __len__(self) -> int:
        return self._count

    def __contains__(self, place: tuple[int, int]) -> bool:
        return self._number(*place) != _NONE

    def add(self, pair: int, order: int, text: bytes) -> None:
        """Keep a text."""
        numbers = self._places[pair]
        if len(numbers) <= order:
            numbers.extend([_NONE] * (order + 1 - len(numbers)))
        numbers[order] = len(self._blocks) * _BLOCK + len(self._waiting)
        self._waiting.append(text)
        self._count += 1
        if len(self._waiting) == _BLOCK:
            self._blocks.append(zlib.compress(b"".join(self._waiting), _LEVEL))
            self._ends.append(array("l", accumulate(map(len, self._waiting))))
            self._waiting = []

    def at(self, pair: int, order: int) -> bytes:
        """Return a text. Raises KeyError where there is none."""
        number = self._number(pair, order)
        if number == _NONE:
            raise KeyError((pair, order))
        block, at = divmod(number, _BLOCK)
        if block == len(self._blocks):
            return self._waiting[at]
        ends = self._ends[block]
        return self._opened(block)[ends[at - 1] if at else 0 : ends[at]]

    def places(self) -> Iterator[tuple[int, int]]:
        """Yield the numbers of all texts, in order."""
        for pair in sorted(self._places):
            yield from ((pair, order) for order, number in enumerate(self._places[pair]) if number != _NONE)

    def _number(self, pair: int, order: int) -> int:
        numbers = self._places.get(pair, ())
        return numbers[order] if order < len(numbers) else _NONE

    def _open(self, block: int) -> bytes:
        return zlib.decompress(self._blocks[block])
