"""``.npy`` files, and where the file of a recorded tensor is: below the folder of its dump, whatever its name says.

numpy reads a header as Python, which takes longer than to read a small array.
"""

from __future__ import annotations

import io
import math
import os
import re
import stat
import sys
from functools import lru_cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple, TypeAlias

from msprobe_hooks.errors import DumpError
from msprobe_hooks.regular_files import content_of, open_regular

if TYPE_CHECKING:
    import numpy as np


# As numpy writes the header of an array without fields, in version 1.0 of the format; any other is numpy's to read.
_PLAIN = re.compile(
    rb"\x93NUMPY\x01\x00(?s:(..))\{'descr': '([<>|]?[biufc]\d{1,2})', 'fortran_order': (True|False), "
    rb"'shape': \(([\d, ]*)\), \} *\n"
)
# Magic, version and the header's length.
_PREFIX_BYTES = 10
# That of most arrays takes 128 in all; numpy reads none of this length.
_LONGEST_BYTES = 2**14

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"


class NpyHeader(NamedTuple):
    """An array's shape and dtype, whether its first index runs fastest, and at which byte its values begin."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    fortran_order: bool
    offset: int


def header_of(file: Path | str) -> NpyHeader:
    """Read the header of a ``.npy`` file.

    Raises ValueError where it is none, is cut off or holds pickled objects, OSError where it cannot be read.
    """
    with open_regular(file, buffering=0) as stream:
        return _header(stream.read(_LONGEST_BYTES), os.fstat(stream.fileno()).st_size)


def _header(beginning: bytes, size: int) -> NpyHeader:
    """Return the header of a file of so many bytes. Raises ValueError where there is none."""
    header = _plain(beginning) or _by_numpy(io.BytesIO(beginning))
    if header.dtype.hasobject:
        raise ValueError("it holds pickled objects, which are not read")
    if not all(type(length) is int and 0 <= length <= sys.maxsize for length in header.shape):
        raise ValueError(f"its header declares the invalid shape {header.shape}")
    data_bytes, expected = size - header.offset, math.prod(header.shape) * header.dtype.itemsize
    if data_bytes < expected:
        raise ValueError(f"it holds {data_bytes} of {expected} bytes")
    return header


@lru_cache(maxsize=64)
def dtype_name(dtype: np.dtype[Any]) -> str:
    """Return numpy's name of a dtype, which takes numpy longer than to read a header."""
    return str(dtype.name)


def read_array(file: Path | str) -> Array:
    """Return the array of a ``.npy`` file, left in the file where it is large; raises as `header_of`."""
    import numpy as np

    content = content_of(file)
    header = _header(content[:_LONGEST_BYTES], len(content))
    flat = np.frombuffer(content, header.dtype, math.prod(header.shape), header.offset)
    return flat.reshape(header.shape, order="F" if header.fortran_order else "C")


def _plain(beginning: bytes) -> NpyHeader | None:
    match = _PLAIN.match(beginning)
    if match is None or match.end() != _PREFIX_BYTES + int.from_bytes(match[1], "little"):
        return None
    try:
        dtype = _dtype(match[2].decode())
    except TypeError:
        # There are no floats of three bytes.
        return None
    return NpyHeader(_sizes(match[4]), dtype, match[3] == b"True", match.end())


@lru_cache(maxsize=256)
def _sizes(text: bytes) -> tuple[int, ...]:
    return tuple(map(int, re.findall(rb"\d+", text)))


@lru_cache(maxsize=64)
def _dtype(text: str) -> np.dtype[Any]:
    # Runs that are compared by statistics load no numpy.
    import numpy as np

    return np.dtype(text)


def _by_numpy(stream: IO[bytes]) -> NpyHeader:
    from numpy.lib import format as npy

    read = npy.read_array_header_1_0 if npy.read_magic(stream) == (1, 0) else npy.read_array_header_2_0
    try:
        shape, fortran_order, dtype = read(stream)
    except Exception as error:
        # numpy parses a header as Python, which may raise anything of one that is damaged.
        raise ValueError(f"its header cannot be read: {error}") from None
    return NpyHeader(shape, dtype, fortran_order, stream.tell())


def find_file(folder: Path, name: str) -> Path | None:
    """Return the path of a tensor's file, None where it is missing. Raises DumpError where its name is none."""
    # Asked for each of thousands of files: of strings, because to take paths apart costs more than to ask the system.
    text = os.path.join(folder, name)  # noqa: PTH118
    try:
        mode = _mode_of(text)
        # A folder has many files, of which few are links.
        place = _resolved(text if stat.S_ISLNK(mode) else os.path.dirname(text))  # noqa: PTH120
        home = _resolved(str(folder))
        inside = place == home or place.startswith(os.path.join(home, ""))  # noqa: PTH118
        exists = inside and stat.S_ISREG(Path(text).stat().st_mode if stat.S_ISLNK(mode) else mode)
    except (OSError, RuntimeError, ValueError):
        # A name with NUL, one that is too long, a loop of links.
        raise DumpError(f"{name[:100]!r}: no tensor file can have this name") from None
    if not inside:
        raise DumpError(f"{name!r}: a tensor file must lie in {folder}; this name leads out of it")
    if not text.endswith((".pt", ".npy", ".safetensors")):
        raise DumpError(f"{name!r}: tensor files end in .pt or .npy, or are named as 0.safetensors::NAME")
    return Path(text) if exists else None


def _mode_of(path: str) -> int:
    """Return what kind of file a path is, a link itself; 0 where there is none."""
    try:
        return os.lstat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return 0


@lru_cache(maxsize=64)
def _resolved(path: str) -> str:
    return os.path.realpath(path)
