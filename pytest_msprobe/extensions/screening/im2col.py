"""Matrices of patches, one for each window of a convolution, made block by block; tensors as batches of matrices."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from pytest_msprobe.engine.replay.ops.convolution_geometry import Windows, each_of
from pytest_msprobe.extensions.screening.tile_sums import LENGTH, TILE, slices


@dataclass(frozen=True, slots=True)
class Layout:
    """Dimensions in the ``order`` in which they are (batch, ``rows``, ``columns``) once neighbours are joined.

    Those that are to be taken apart first make the shape ``parts``; without it they are as they are.
    """

    order: tuple[int, ...]
    rows: int
    columns: int
    parts: tuple[int, ...] = ()

    def matrices(self, values: torch.Tensor) -> torch.Tensor:
        """Return values of the tensor, or of its gradient, as (batch, rows, columns); a copy where no view is."""
        parts = values.reshape(self.parts) if self.parts else values
        return parts.permute(self.order).reshape(-1, self.rows, self.columns)

    @classmethod
    def of(cls, shape: torch.Size, *, is_joined: bool = False) -> Layout:
        """Return that of a batch of matrices, with all dimensions but the last one joined to rows where asked for."""
        rows = math.prod(shape[:-1]) if is_joined else shape[-2]
        return cls(tuple(range(len(shape))), rows, shape[-1])


@dataclass(frozen=True, slots=True)
class Contraction:
    """An operation on two tensors that is a product of matrices, or a batch of them; ``shape`` is the result's."""

    left: Layout
    right: Layout
    result: Layout
    shape: tuple[int, ...]


def contraction(equation: str, left: torch.Size, right: torch.Size) -> Contraction | None:
    """Return what product an einsum is; None where it is none, broadcasts, or is written with an ellipsis."""
    match = re.fullmatch(r"([a-zA-Z]+),([a-zA-Z]+)(?:->([a-zA-Z]+))?", equation.replace(" ", ""))
    if match is None:
        return None
    ours, theirs, result = match.groups()
    result = result or "".join(sorted(letter for letter in ours + theirs if (ours + theirs).count(letter) == 1))
    if any(len(set(term)) != len(term) for term in (ours, theirs, result)):
        return None
    if (len(ours), len(theirs)) != (len(left), len(right)):
        return None
    sizes = dict(zip(ours, left, strict=True))
    if any(sizes.setdefault(letter, size) != size for letter, size in zip(theirs, right, strict=True)):
        return None
    batch = "".join(letter for letter in result if letter in ours and letter in theirs)
    rows = "".join(letter for letter in result if letter in ours and letter not in theirs)
    columns = "".join(letter for letter in result if letter in theirs and letter not in ours)
    inner = "".join(letter for letter in ours if letter in theirs and letter not in result)
    # A dimension that is summed over in one operand alone, or that no operand has, is in none of these.
    expected = ((ours, batch + rows + inner), (theirs, batch + inner + columns), (result, batch + rows + columns))
    if not (rows and columns and inner) or any({*letters} != {*dimensions} for letters, dimensions in expected):
        return None
    return Contraction(
        _layout(ours, batch, rows, inner, sizes),
        _layout(theirs, batch, inner, columns, sizes),
        _layout(result, batch, rows, columns, sizes),
        tuple(sizes[letter] for letter in result),
    )


def _layout(letters: str, batch: str, rows: str, columns: str, sizes: Mapping[str, int]) -> Layout:
    order = tuple(letters.index(letter) for letter in batch + rows + columns)
    return Layout(order, math.prod(sizes[letter] for letter in rows), math.prod(sizes[letter] for letter in columns))


@dataclass(frozen=True, slots=True)
class Patches:
    """The patches of all windows as rows, (windows, taps * channels), or as columns where it is transposed.

    ``pixels`` are (elements, channels); a window's tap is the pixel at the sum of its ``starts`` (windows,) and its
    ``offsets`` (taps,), int64 both.
    """

    pixels: torch.Tensor
    starts: torch.Tensor
    offsets: torch.Tensor
    is_transposed: bool = False

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        rows, columns = len(self.starts), len(self.offsets) * self.pixels.shape[1]
        return (columns, rows) if self.is_transposed else (rows, columns)

    @property
    def mT(self) -> Patches:  # noqa: N802 - torch's name
        """The transposed matrix."""
        return replace(self, is_transposed=not self.is_transposed)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: torch.Tensor) -> torch.Tensor:
        """Return some rows as a matrix."""
        if not self.is_transposed:
            return self._read(self.starts[rows], self.offsets)
        channels = self.pixels.shape[1]
        taps = self.offsets[rows.div(channels, rounding_mode="floor")]
        return self.pixels[self.starts + taps.unsqueeze(1), (rows % channels).unsqueeze(1)]

    def blocks(self, dtype: torch.dtype) -> Iterator[tuple[slice, slice, torch.Tensor]]:
        """Yield rows, columns and values of all blocks, each of which is overwritten by the next, as of a tensor."""
        channels = self.pixels.shape[1]
        # So many taps are whole tiles of columns.
        least = TILE // math.gcd(TILE, channels)
        taps = max(1, LENGTH // (least * channels)) * least
        buffer = torch.empty(TILE * min(taps, len(self.offsets)) * channels, dtype=dtype)
        for down in slices(len(self.starts)):
            for some in slices(len(self.offsets), taps):
                part = self._read(self.starts[down], self.offsets[some])
                along = slice(some.start * channels, some.stop * channels)
                block = buffer[: part.numel()].view(part.shape).copy_(part)
                yield (along, down, block.mT) if self.is_transposed else (down, along, block)

    def _read(self, starts: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
        at = starts.unsqueeze(1) + offsets
        return self.pixels.index_select(0, at.view(-1)).view(len(starts), -1)


def patches_of(values: torch.Tensor, groups: int, ways: Sequence[tuple[Windows, ...]]) -> list[list[Patches]]:
    """Return the patches of values (N, C, ...) in each of several ways to lay windows, for each group of channels.

    Windows are in order of N and of the dimensions, elements of a patch of its taps and then of the channels. All share
    one copy of the values, padded with the zeros that windows read.
    """
    sides = values.shape[2:]
    reached = [[way[axis] for way in ways if len(way[axis].offsets)] for axis in range(len(sides))]
    low = [max(0, *(-min(reading.offsets) - reading.starts[0] for reading in along), 0) for along in reached]
    high = [
        max(0, *(reading.starts[-1] + max(reading.offsets) - side + 1 for reading in along), 0)
        for along, side in zip(reached, sides, strict=True)
    ]
    sizes = [sum(extents) for extents in zip(low, sides, high, strict=True)]
    by_group = in_groups(values, 1, groups).movedim(1, 0).movedim(2, -1)
    padded = torch.zeros(groups, len(values), *sizes, by_group.shape[-1], dtype=values.dtype)
    inside = tuple(slice(start, start + side) for start, side in zip(low, sides, strict=True))
    index = (slice(None), slice(None), *inside)
    padded[index] = by_group
    pixels = padded.flatten(1, -2)
    by_way = []
    for way in ways:
        starts, offsets = torch.arange(len(values)), torch.zeros(1, dtype=torch.int64)
        for windows, size, before in zip(way, sizes, low, strict=True):
            starts = (starts.unsqueeze(1) * size + _indices(windows.starts) + before).view(-1)
            offsets = (offsets.unsqueeze(1) * size + _indices(windows.offsets)).view(-1)
        by_way.append([Patches(group_pixels, starts, offsets) for group_pixels in pixels])
    return by_way


def in_groups(values: torch.Tensor, dimension: int, groups: int) -> torch.Tensor:
    """Return a view with a dimension taken apart into (groups, size of a group)."""
    sizes = list(values.shape)
    sizes[dimension : dimension + 1] = [groups, sizes[dimension] // groups]
    return values.view(sizes)


def _indices(numbers: range) -> torch.Tensor:
    return torch.arange(numbers.start, numbers.stop, numbers.step)


def patches(values: torch.Size, weight: torch.Size, options: Mapping[str, Any]) -> Contraction | None:
    """Return what product a convolution of (N, C, ...) with a weight (O, C, ...) is.

    Its windows are as large as its steps and fill the input, as those of a pointwise convolution or of an embedding of
    patches: then it multiplies (N * windows, C * kernel) by (C * kernel, O). None for any other: where windows overlap,
    are padded, dilated or grouped, or leave elements at the end out.
    """
    if len(values) != len(weight) or values[1] != weight[1]:
        return None
    sides, kernel = values[2:], tuple(weight[2:])
    count = len(kernel)
    plain = (
        each_of(options.get("stride", 1), count) == kernel
        and options.get("padding", 0) in (0, "valid", (0,) * count, [0] * count)
        and each_of(options.get("dilation", 1), count) == (1,) * count
        and options.get("groups", 1) == 1
    )
    if not plain or any(side % size for side, size in zip(sides, kernel, strict=True)):
        return None
    windows = tuple(side // size for side, size in zip(sides, kernel, strict=True))
    rows, inner, columns = values[0] * math.prod(windows), weight[1] * math.prod(kernel), weight[0]
    spatial = tuple(range(2, 2 + count))
    apart = tuple(part for pair in zip(windows, kernel, strict=True) for part in pair)
    of_windows, of_kernel = tuple(range(2, 2 + 2 * count, 2)), tuple(range(3, 3 + 2 * count, 2))
    return Contraction(
        Layout((0, *of_windows, 1, *of_kernel), rows, inner, (values[0], values[1], *apart)),
        Layout((1, *spatial, 0), inner, columns),
        Layout((0, *spatial, 1), rows, columns),
        (values[0], columns, *windows),
    )
