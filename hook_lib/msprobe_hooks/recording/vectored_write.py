"""A file written from pieces of memory that lie apart, without putting them together first; arrays as ``.npy``."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from msprobe_hooks.dump.writer import FILE_MODE

Piece: TypeAlias = "bytes | memoryview"

# What Linux takes at once.
_MOST_PIECES = 1024


def write_gathered(path: Path, pieces: Sequence[Piece]) -> None:
    """Write a new file; one of that name is replaced, and others that share its content keep it. Raises OSError.

    Pieces are bytes, or views of single bytes. The interpreter's lock is not held while the system copies.
    """
    file = _created(path)
    try:
        for start in range(0, len(pieces), _MOST_PIECES):
            _write_all(file, pieces[start : start + _MOST_PIECES])
    finally:
        os.close(file)


def _created(path: Path) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    try:
        return os.open(path, flags, FILE_MODE)
    except FileExistsError:
        path.unlink()
        return os.open(path, flags, FILE_MODE)


def _write_all(file: int, pieces: Sequence[Piece]) -> None:
    done = os.writev(file, pieces)
    if done == sum(map(len, pieces)):
        return
    # A disk that fills up, a signal, or more than 2 GiB: the rest is written piece by piece.
    for piece in pieces:
        view = memoryview(piece)
        skipped = min(done, len(view))
        view, done = view[skipped:], done - skipped
        while view:
            view = view[os.write(file, view) :]


def write_npy(file: IO[bytes], array: NDArray[Any]) -> None:
    """Write an array, part by part. Raises OSError where the disk refuses.

    Given the file itself, numpy writes past Python and does not notice that the last part finds no room.
    """
    np.save(SimpleNamespace(write=file.write), array, allow_pickle=False)
