"""Parameters made of others: rows of one, or the shards of several ranks put together; values and digests alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from msprobe_hooks.extensions.weights.digest import Digest, added, shifted
from pytest_msprobe.errors import CheckpointError
from pytest_msprobe.extensions.checkpoint.parameters import MatrixDigest, Parameter, Piece

_Stored: TypeAlias = Callable[[], MatrixDigest]


@dataclass(frozen=True, slots=True)
class Placed:
    """A shard, what holds it in words, and the row and the column of the whole at which it begins."""

    shard: Parameter
    words: str
    row: int = 0
    column: int = 0


def rows_of(whole: Parameter, rows: Sequence[slice]) -> Parameter:
    """Return some runs of rows as a parameter; the digests of its columns are unknown, unless it has all rows."""
    count = sum(each.stop - each.start for each in rows)
    if len(rows) == 1 and count == whole.shape[0]:
        return whole

    def load() -> Tensor:
        return torch.cat([whole.load()[each] for each in rows])

    def stored() -> MatrixDigest:
        found = whole.digest()
        return MatrixDigest(_rows_of(found.own, rows), found.rounded and _rows_of(found.rounded, rows))

    return replace(whole, shape=(count, *whole.shape[1:]), load=load, stored=_unless_computed(stored, [whole]))


def transposed(whole: Parameter, note: str) -> Parameter:
    """Return a matrix's transpose as a parameter."""

    def stored() -> MatrixDigest:
        found = whole.digest()
        return MatrixDigest(_transposed(found.own), found.rounded and _transposed(found.rounded))

    return replace(
        whole,
        shape=whole.shape[::-1],
        load=lambda: whole.load().t(),
        stored=_unless_computed(stored, [whole]),
        note=note,
    )


def joined(name: str, placed: Sequence[Placed], shape: tuple[int, ...]) -> Parameter:
    """Return the whole of shards. Raises CheckpointError where they leave out or hold twice what it has."""
    first = placed[0].shard
    if len(placed) == 1 and first.shape == shape:
        return first
    height, width = _matrix(shape)
    held = sum(np.prod(_matrix(each.shard.shape)) for each in placed)
    inside = all(
        each.row + _matrix(each.shard.shape)[0] <= height and each.column + _matrix(each.shard.shape)[1] <= width
        for each in placed
    )
    if held != height * width or not inside or len({(each.row, each.column) for each in placed}) != len(placed):
        raise CheckpointError(
            f"shards of {name} hold {held} of {height * width} elements", remedy="write the weights of all ranks"
        )
    if len({each.shard.dtype for each in placed}) > 1:
        raise CheckpointError(f"shards of {name} have different dtypes")

    def load() -> Tensor:
        whole = torch.empty(height, width, dtype=first.load().dtype)
        for each in placed:
            rows, columns = _matrix(each.shard.shape)
            part = each.shard.load().reshape(rows, columns)
            whole[each.row : each.row + rows, each.column : each.column + columns] = part
        return whole.reshape(shape)

    def stored() -> MatrixDigest:
        found = [(each, each.shard.digest()) for each in placed]
        rounded = [(each, digest.rounded) for each, digest in found]
        own = _joined([(each, digest.own) for each, digest in found], height, width)
        known = [(each, digest) for each, digest in rounded if digest is not None]
        return MatrixDigest(own, _joined(known, height, width) if len(known) == len(rounded) else None)

    pieces = tuple(
        Piece(
            each.words,
            range(each.row, each.row + _matrix(each.shard.shape)[0]),
            range(each.column, each.column + _matrix(each.shard.shape)[1]),
        )
        for each in placed
    )
    shards = [each.shard for each in placed]
    return Parameter(
        shape,
        first.dtype,
        load,
        note=next((each.note for each in shards if each.note), ""),
        fault=next((each.fault for each in shards if each.fault), ""),
        has_values=all(each.has_values for each in shards),
        stored=_unless_computed(stored, shards),
        pieces=pieces,
        is_buffer=first.is_buffer,
    )


def _unless_computed(stored: _Stored, given: Sequence[Parameter]) -> _Stored | None:
    """Return ``stored`` where all digests were written; computing them once of the result takes less."""
    return stored if all(each.stored is not None for each in given) else None


def _matrix(shape: tuple[int, ...]) -> tuple[int, int]:
    return (int(np.prod(shape)), 1) if len(shape) < 2 else (shape[0], int(np.prod(shape[1:])))


def _rows_of(digest: Digest, rows: Sequence[slice]) -> Digest:
    return Digest(np.concatenate([digest.rows[each] for each in rows]), None)


def _transposed(digest: Digest) -> Digest:
    if digest.columns is None:
        raise CheckpointError("digests of columns are unknown")
    return Digest(digest.columns, digest.rows)


def _joined(placed: Sequence[tuple[Placed, Digest]], height: int, width: int) -> Digest:
    rows, columns = np.zeros(height, np.uint64), np.zeros(width, np.uint64)
    has_columns = True
    for place, digest in placed:
        down = slice(place.row, place.row + len(digest.rows))
        rows[down] = added(rows[down], shifted(digest.rows, place.column))
        if digest.columns is None:
            has_columns = False
            continue
        across = slice(place.column, place.column + len(digest.columns))
        columns[across] = added(columns[across], shifted(digest.columns, place.row))
    return Digest(rows, columns if has_columns else None)
