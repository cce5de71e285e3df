"""``.npy`` files: numpy reads a header as Python, which takes longer than to read a small array."""

from __future__ import annotations

import io
import math
import os
import re
import sys
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    import numpy as np

# As numpy writes the header of an array without fields, in version 1.0 of the format; any other is numpy's to read.
_PLAIN = re.compile(
    rb"\x93NUMPY\x01\x00(?s:(..))\{'descr': '([<>|]?[biufc]\d{1,2})', 'fortran_order': (True|False), "
    rb"'shape': \(([\d, ]*)\), \} *\n"
)
# Magic, version and the header's length.
_PREFIX_BYTES = 10
# To map a file takes longer than to read so much of it.
_MAPPED_BYTES = 2**20
# numpy pads a header to a multiple of 64 bytes; that of most arrays takes 128 in all.
_USUAL_BYTES = 256


class NpyHeader(NamedTuple):
    """An array's shape and dtype, whether its first index runs fastest, and at which byte its values begin."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    fortran_order: bool
    offset: int


def read_header(stream: io.FileIO) -> NpyHeader:
    """Read the header of an open ``.npy`` file.

    Raises ValueError where it is none, is cut off or holds pickled objects, OSError where it cannot be read.
    """
    header = _plain(stream.read(_USUAL_BYTES)) or _by_numpy(stream)
    if header.dtype.hasobject:
        raise ValueError("it holds pickled objects, which are not read")
    if any(isinstance(size, bool) or not 0 <= size <= sys.maxsize for size in header.shape):
        raise ValueError(f"its header tells of shape {header.shape}, which none has")
    held, wanted = os.fstat(stream.fileno()).st_size - header.offset, math.prod(header.shape) * header.dtype.itemsize
    if held < wanted:
        raise ValueError(f"it holds {held} of {wanted} bytes")
    return header


def header_of(file: Path | str) -> NpyHeader:
    """Read the header of a ``.npy`` file; raises as `read_header`."""
    with io.FileIO(file) as stream:
        return read_header(stream)


@lru_cache(maxsize=64)
def dtype_name(dtype: np.dtype[Any]) -> str:
    """Return numpy's name of a dtype, which takes numpy longer than to read a header."""
    return str(dtype.name)


def read_array(file: Path) -> np.ndarray[Any, np.dtype[Any]]:
    """Return the array of a ``.npy`` file, mapped where it is large; raises as `read_header`."""
    import numpy as np

    with io.FileIO(file) as stream:
        header = read_header(stream)
        count = math.prod(header.shape)
        order: Literal["C", "F"] = "F" if header.fortran_order else "C"
        if count * header.dtype.itemsize > _MAPPED_BYTES:
            return np.memmap(file, header.dtype, "r", header.offset, header.shape, order)
        stream.seek(header.offset)
        return np.frombuffer(stream.read(count * header.dtype.itemsize), header.dtype).reshape(
            header.shape, order=order
        )


def _plain(beginning: bytes) -> NpyHeader | None:
    found = _PLAIN.match(beginning)
    if found is None or found.end() != _PREFIX_BYTES + int.from_bytes(found[1], "little"):
        return None
    try:
        dtype = _dtype(found[2].decode())
    except TypeError:
        # There are no floats of three bytes.
        return None
    return NpyHeader(_sizes(found[4]), dtype, found[3] == b"True", found.end())


@lru_cache(maxsize=256)
def _sizes(text: bytes) -> tuple[int, ...]:
    return tuple(map(int, re.findall(rb"\d+", text)))


@lru_cache(maxsize=64)
def _dtype(text: str) -> np.dtype[Any]:
    # Runs that are compared by statistics load no numpy.
    import numpy as np

    return np.dtype(text)


def _by_numpy(stream: io.FileIO) -> NpyHeader:
    from numpy.lib import format as npy

    stream.seek(0)
    read = npy.read_array_header_1_0 if npy.read_magic(stream) == (1, 0) else npy.read_array_header_2_0
    try:
        shape, fortran_order, dtype = read(stream)
    except Exception as error:
        # numpy parses a header as Python, which may raise anything of one that is damaged.
        raise ValueError(f"its header cannot be read: {error}") from None
    return NpyHeader(shape, dtype, fortran_order, stream.tell())
