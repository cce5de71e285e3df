"""Locations of errors in a tensor: numbers in, a small map of the tensor's blocks out."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch

from msprobe_standards.dtypes import family
from msprobe_standards.tensor_layouts import is_plain
from pytest_msprobe.engine.values.tolerance import Allowance, Errors, errors
from pytest_msprobe.results.error_map import BINS, NO_ELEMENT, ErrorMap, WorstElement, level_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

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


_WORST = 5


def error_map(
    target: torch.Tensor,
    golden: torch.Tensor,
    allowance: Allowance,
    *,
    baseline: torch.Tensor | None = None,
    dtype: torch.dtype | None = None,
) -> ErrorMap | None:
    """Return the map of a target against golden; None for what has no elements to be compared one by one.

    Both are CPU tensors; golden's dtype is usually the wider one. ``baseline``, where it is comparable, adds its
    histogram and its values at the worst elements. ``dtype`` is the target's own where ``target`` merely carries its
    values in a wider one. The extra memory does not grow with the tensor, but for a copy of one that is not contiguous.
    """
    dtype = dtype or target.dtype
    if not _comparable(target, golden) or not target.numel():
        return None
    if baseline is not None and not _comparable(baseline, golden):
        baseline = None
    exact = family(dtype) in ("bool", "int")
    shape, folded = tuple(target.shape), fold(target.shape)
    located = _Seen(shape or (1,), np.full(folded.grid, -1.0))
    for at, piece, of_target, of_golden in _parts(folded, _flat(target), _flat(golden)):
        located.add(piece, at, errors(of_target, of_golden, dtype, allowance), (folded.height, folded.width))
    own = np.zeros(len(BINS) + 2, dtype=np.int64)
    if baseline is not None:
        for _, _, of_baseline, of_golden in _parts(folded, _flat(baseline), _flat(golden)):
            own += _counts(errors(of_baseline, of_golden, dtype, allowance).in_ulps)
    return ErrorMap(
        shape=shape,
        rows=folded.rows,
        columns=folded.columns,
        split=folded.split,
        block=(folded.height, folded.width),
        lines=tuple("".join(NO_ELEMENT if share < 0 else level_of(share) for share in line) for line in located.grid),
        allowed=allowance.in_words("units" if exact else "ULP"),
        unit="1" if exact else "ULP",
        wrong=located.wrong,
        extent=tuple(zip(located.lowest, located.highest, strict=True)),
        histogram=tuple(located.counts.tolist()),
        worst=tuple(_worst_element(place, target, golden, baseline) for _, place in located.worst),
        baseline_histogram=() if baseline is None else tuple(own.tolist()),
    )


def _comparable(tensor: torch.Tensor, golden: torch.Tensor) -> bool:
    if not (is_plain(tensor) and is_plain(golden)):
        return False
    return tensor.shape == golden.shape and family(tensor.dtype) == family(golden.dtype)


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().resolve_conj().resolve_neg().reshape(-1)


def _parts(folded: Fold, *flat: torch.Tensor) -> Iterator[tuple[NDArray[np.int64], Piece, torch.Tensor, torch.Tensor]]:
    """Yield the elements of each piece, with their places: of whole rows as they lie in memory."""
    one, other = flat
    is_whole = folded.numel == folded.rows * folded.columns
    matrices = [x.view(folded.rows, folded.columns) for x in flat] if is_whole else []
    for piece in folded.pieces():
        (top, bottom), (left, right) = piece.rows, piece.columns
        if (left, right) == (0, folded.columns):
            first, end = top * folded.columns, min(bottom * folded.columns, folded.numel)
            at = np.arange(first, end)
            yield at, piece, one[first:end], other[first:end]
        else:
            at = (np.arange(top, bottom)[:, None] * folded.columns + np.arange(left, right)).reshape(-1)
            if is_whole:
                # A slice is copied some times faster than elements are gathered.
                of_one, of_other = (matrix[top:bottom, left:right].reshape(-1) for matrix in matrices)
                yield at, piece, of_one, of_other
                continue
            at = at[at < folded.numel]
            places = torch.from_numpy(at)
            yield at, piece, one[places], other[places]


@dataclass(slots=True)
class _Seen:
    """Errors so far. ``grid`` holds the greatest share of each block, -1 where it has no element.

    ``lowest`` and ``highest`` are the least and the greatest index of a wrong element along each dimension. Of a matrix
    of 4 by 6 in blocks of 2 by 2, whose element (3, 5) is off by 2.5 times what is allowed::

        grid  [[0.0, 0.1, 0.3],     wrong  1    lowest, highest  [3, 5], [3, 5]
               [0.0, 0.2, 2.5]]     worst  [(2.5, 23), (0.3, 4), ...]     share and flat index
    """

    shape: tuple[int, ...]
    grid: NDArray[np.float64]
    counts: NDArray[np.int64] = field(default_factory=lambda: np.zeros(len(BINS) + 2, dtype=np.int64))
    wrong: int = 0
    lowest: list[int] = field(default_factory=list)
    highest: list[int] = field(default_factory=list)
    worst: list[tuple[float, int]] = field(default_factory=list)

    def add(self, piece: Piece, at: NDArray[np.int64], piece_errors: Errors, block: tuple[int, int]) -> None:
        """Add the errors of the elements at these places; a block has so many rows and columns."""
        height, width = block
        (top, bottom), (left, right) = piece.rows, piece.columns
        shares = np.full((bottom - top) * (right - left), -1.0)
        shares[: piece_errors.shares.size] = piece_errors.shares
        of_columns = np.maximum.reduceat(shares.reshape(bottom - top, -1), np.arange(0, right - left, width), axis=1)
        of_blocks = np.maximum.reduceat(of_columns, np.arange(0, bottom - top, height), axis=0)
        self.grid[slice(*piece.lines), slice(*piece.blocks)] = of_blocks
        self.counts += _counts(piece_errors.in_ulps)
        # Of the pieces behind the first ones few elements are as bad as the worst so far.
        least = self.worst[-1][0] if len(self.worst) == _WORST else 0.0
        bad = np.flatnonzero(piece_errors.shares >= least) if least else np.arange(piece_errors.shares.size)
        most = [(float(piece_errors.shares[bad[i]]), int(at[bad[i]])) for i in _greatest(piece_errors.shares[bad])]
        self.worst = sorted(self.worst + most, key=lambda one: (-one[0], one[1]))[:_WORST]
        wrong = at[piece_errors.shares > 1]
        if wrong.size:
            self.wrong += wrong.size
            indices = np.unravel_index(wrong, self.shape)
            self.lowest = list(map(min, self.lowest or self.shape, (int(index.min()) for index in indices)))
            self.highest = list(map(max, self.highest or [0] * len(indices), (int(index.max()) for index in indices)))


def _greatest(shares: NDArray[np.float64]) -> list[int]:
    """Return the places of the greatest of several shares, of equal ones the first; none of what has no error."""
    if shares.size <= _WORST:
        return [int(i) for i in np.flatnonzero(shares > 0)]
    least = np.partition(shares, -_WORST)[-_WORST]
    places = [*np.flatnonzero(shares > least), *np.flatnonzero(shares == least)[:_WORST]]
    return [int(i) for i in places[:_WORST] if shares[i] > 0]


def _counts(in_ulps: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return how many errors are in each bin: up to its end, then those beyond, then those that are not finite."""
    # One pass a bin is faster than a binary search for each element.
    ends = (*BINS, np.finfo(np.float64).max)
    up_to = [np.count_nonzero(in_ulps <= end) for end in ends]
    return np.diff([0, *up_to, in_ulps.size])


def _worst_element(
    place: int, target: torch.Tensor, golden: torch.Tensor, baseline: torch.Tensor | None
) -> WorstElement:
    index = tuple(int(i) for i in np.unravel_index(place, tuple(target.shape))) if target.shape else ()
    baseline_value = "" if baseline is None else _shown(baseline[index])
    return WorstElement(index, _shown(target[index]), _shown(golden[index]), baseline_value)


def _shown(element: torch.Tensor) -> str:
    value = element.item()
    return f"{value:.9g}" if isinstance(value, (float, complex)) else str(value)
