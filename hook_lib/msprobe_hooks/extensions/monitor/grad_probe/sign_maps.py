"""The sign map of a gradient in a file: which elements are greater than zero.

msprobe writes them as an array of bool, one byte an element. A packed map takes an eighth of that: one record with the
fields ``shape`` (int64) and ``bits`` (uint8, what ``numpy.packbits`` makes of the map). Both are plain ``.npy`` files:

    record = numpy.load("weight.npy")
    signs = numpy.unpackbits(record["bits"], count=record["shape"].prod()).reshape(record["shape"]).astype(bool)
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from msprobe_hooks.errors import MonitorError
from msprobe_hooks.regular_files import open_regular

SignMap: TypeAlias = NDArray[np.bool_]


def file_name(parameter: str) -> str:
    """Return the name of a parameter's file, which lies in its folder whatever the parameter is called."""
    return f"{as_file_name(parameter)}.npy"


def as_file_name(parameter: str) -> str:
    """Return a parameter's name without what would lead into another folder or end the name."""
    return parameter.replace("/", "%2F").replace("\0", "%00")


def packed(signs: SignMap) -> NDArray[Any]:
    """Return the one record of a packed map."""
    bits = np.packbits(signs)
    record = np.zeros((), dtype=[("shape", "<i8", (signs.ndim,)), ("bits", "u1", (bits.size,))])
    record["shape"], record["bits"] = signs.shape, bits
    return record


def read(path: Path) -> SignMap:
    """Return the map in a file of either kind. Raises MonitorError where there is none."""
    try:
        with open_regular(path) as file:
            array = np.lib.format.read_array(file, allow_pickle=False)
    except Exception as error:
        # Bytes that are not an array make numpy's reader raise almost anything.
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise MonitorError(f"{path}: not a readable sign map: {reason}; copy or record it again") from None
    if array.dtype.names == ("shape", "bits"):
        return _unpacked(path, array)
    if array.dtype != np.bool_:
        raise MonitorError(f"{path}: holds {array.dtype}, not a sign map, which is bool or packed; record it again")
    return array


def _unpacked(path: Path, record: NDArray[Any]) -> SignMap:
    shape = [int(size) for size in record["shape"].ravel()] if record.shape == () else [-1]
    bits, count = record["bits"], math.prod(shape)
    if min(shape, default=0) < 0 or bits.dtype != np.uint8 or bits.shape != (-(-count // 8),):
        raise MonitorError(f"{path}: its shape does not match its bits; record it again")
    return np.unpackbits(bits, count=count).reshape(shape).view(np.bool_)
