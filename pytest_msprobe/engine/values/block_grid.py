"""A tensor of any shape as a matrix, and the matrix as a small grid of blocks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

#: The most blocks along either side: what a screen can show and a journal can hold.
MOST_BLOCKS = 64
# Elements looked at together: some megabytes of float64, whatever the size of the tensor.
_PIECE = 2**18


@dataclass(frozen=True, slots=True)
class Piece:
    """Some of the matrix, in whole blocks: first and end of its rows and columns, of the grid's lines and blocks."""

    rows: tuple[int, int]
    columns: tuple[int, int]
    lines: tuple[int, int]
    blocks: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Fold:
    """A matrix of ``rows`` by ``columns`` in the order of a tensor's elements, in blocks of ``height`` by ``width``.

    The tensor's dimensions before ``split`` are the rows; a ``split`` of None says that its ``numel`` elements are cut
    into lines, the last of which may be short.
    """

    numel: int
    rows: int
    columns: int
    split: int | None

    @property
    def height(self) -> int:
        """Rows of a block."""
        return math.ceil(self.rows / MOST_BLOCKS)

    @property
    def width(self) -> int:
        """Columns of a block."""
        return math.ceil(self.columns / MOST_BLOCKS)

    @property
    def grid(self) -> tuple[int, int]:
        """The lines of blocks, and the blocks of a line."""
        return math.ceil(self.rows / self.height), math.ceil(self.columns / self.width)

    def pieces(self) -> Iterator[Piece]:
        """Yield all of the matrix, so few elements at a time that what is computed of them stays small."""
        down, across = self.grid
        lines = max(1, _PIECE // (self.height * self.columns))
        blocks = max(1, _PIECE // (self.height * self.width)) if lines == 1 else across
        for line in range(0, down, lines):
            for block in range(0, across, blocks):
                last_line, last_block = min(down, line + lines), min(across, block + blocks)
                yield Piece(
                    (line * self.height, min(self.rows, last_line * self.height)),
                    (block * self.width, min(self.columns, last_block * self.width)),
                    (line, last_line),
                    (block, last_block),
                )


def fold(shape: Sequence[int]) -> Fold:
    """Return a tensor's fold: its last dimension is across, with those before it as long as no block merges two.

    So whatever is wrong along the last dimension, a column, a tile, is seen as such. A tensor with one long dimension
    alone has no second one: it is cut into lines whose length is a power of two, near the square root of its own.
    Raises ValueError for a tensor without elements.
    """
    numel = math.prod(shape)
    if not numel:
        raise ValueError(f"a tensor of shape {tuple(shape)} has no elements to fold")
    if max(shape, default=1) == numel > MOST_BLOCKS:
        columns = 2 ** math.ceil(math.log2(numel) / 2)
        return Fold(numel, math.ceil(numel / columns), columns, None)
    split = max(len(shape) - 1, 0)
    while split and math.prod(shape[split - 1 :]) <= MOST_BLOCKS and math.prod(shape[: split - 1]) > 1:
        split -= 1
    return Fold(numel, math.prod(shape[:split]), math.prod(shape[split:]), split)
