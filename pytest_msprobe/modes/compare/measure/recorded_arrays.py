"""Recorded tensors as arrays: torch takes a second to be loaded, and 20 times as long for each small file.

Read are ``.npy`` files, containers, and what torch saved of one plain tensor: a zip archive whose ``NAME/data.pkl``
describes it and whose ``NAME/data/0`` holds the elements. All else is left to torch.
"""

from __future__ import annotations

import math
import re
from functools import lru_cache
from struct import Struct, error
from typing import TYPE_CHECKING, Any

import numpy as np

from msprobe_hooks.dump.containers import find_tensor, read_elements, split_name
from msprobe_hooks.dump.names import plain_dtype
from msprobe_hooks.dump.npy import Array, find_file, read_array
from msprobe_hooks.errors import DumpError
from msprobe_hooks.regular_files import content_of

if TYPE_CHECKING:
    from pathlib import Path

    from msprobe_hooks.dump.reader import Dump
    from msprobe_hooks.dump.values import Value

#: Elements of bfloat16, which numpy does not have; `as_floats` gives their numbers.
BFLOAT16 = np.dtype([("bfloat16", np.uint16)])
# By what dumps call them, and what torch calls their storages; none is of the last three.
_NAMES = "float64 float32 float16 bfloat16 int64 int32 int16 int8 uint8 bool uint64 uint32 uint16".split()
_DTYPES = {name: BFLOAT16 if name == "bfloat16" else np.dtype(name) for name in _NAMES}
_STORAGES = b"Double Float Half BFloat16 Long Int Short Char Byte Bool".split()
_DTYPES_OF_STORAGES = dict(zip(_STORAGES, _DTYPES.values(), strict=False))

# What torch pickles of a tensor of the CPU: how many elements its storage has, sizes, strides.
_NUMBER = rb"(?:K.|M..|J....)"
_NUMBERS = rb"(\)|N\x85q.|NN\x86q.|NNN\x87q.|\(N{4,}tq.)".replace(b"N", _NUMBER)
_PICKLE = re.compile(
    rb"\x80\x02ctorch\._utils\n_rebuild_tensor_v2\nq.\(\(X\x07\0\0\0storageq.ctorch\n(\w+)Storage\nq.X\x01\0\0\x000q."
    rb"X\x03\0\0\0cpuq.(%b)tq.QK\0%b%b[\x88\x89]ccollections\nOrderedDict\nq.\)Rq.tq.Rq.\."
    % (_NUMBER, *[_NUMBERS] * 2),
    re.DOTALL,
)
# In the directory of a zip archive a member that is not compressed: its size, where it begins, its name.
_MEMBER = re.compile(rb"PK\x01\x02.{6}\0\0.{8}(.{4})\1.{14}(.{4})([^/]*/(?:data\.pkl|byteorder|data/0))", re.DOTALL)
# What comes before a member's name: lengths of it and of more; the end: how long the directory is, where it begins.
_HEADER, _END = Struct("<26xHH"), Struct("<4s8xII2x")


def load_array(value: Value, dump: Dump) -> Array | None:
    """Return what a value's file holds; None where that is not what was recorded, or needs torch to be read."""
    name, dtype = value.data_name or "", plain_dtype(value.dtype)
    # Of other files torch measures the statistics that a dump leaves to them.
    if dtype not in _DTYPES or (value.statistics is None and not name.endswith(".npy")):
        return None
    array = dump.array_at_hand(name)
    if array is None:
        try:
            array = _read(dump.tensor_folder, name)
        except (OSError, ValueError, TypeError, DumpError, error):
            return None
    if array is None:
        return None
    if array.size == math.prod(value.shape) and not dump.keeps_shapes:
        array = array.reshape(value.shape)
    is_of_dtype = array.dtype.newbyteorder("=") == _DTYPES[dtype]
    return array if array.size and array.shape == value.shape and is_of_dtype else None


def as_floats(part: Array, dtype: type[np.floating[Any]]) -> Array:
    """Return the numbers of a part in a dtype that holds them."""
    is_wide = part.dtype != BFLOAT16
    floats: Array = part if is_wide else np.left_shift(part["bfloat16"], 16, dtype=np.uint32).view(np.float32)
    return floats.astype(dtype, copy=False)


def _read(folder: Path, name: str) -> Array | None:
    contained = split_name(name)
    path = find_file(folder, name if contained is None else contained[0])
    if path is None:
        return None
    if contained is None:
        return read_array(path) if path.suffix == ".npy" else read_saved(path)
    tensor = find_tensor(path, contained[1])
    dtype = _DTYPES.get(tensor.dtype)
    if dtype is None or tensor.codec is not None:
        return None
    array: Array = np.ndarray(tensor.shape, dtype, read_elements(path, tensor, mapped=True))
    return array


def read_saved(path: Path) -> Array | None:
    """Return the plain tensor that a ``.pt`` file holds, left in the file where that is large; None for all else.

    Raises OSError where the file cannot be read, ValueError, TypeError or struct.error where it is damaged.
    """
    content = content_of(path)
    signature, size, start = _END.unpack(content[-_END.size :])
    members, directory = {}, content[start : start + size]
    # A file that has lost or gained bytes has it elsewhere.
    if signature == b"PK\x05\x06" and directory.startswith(b"PK\x01\x02"):
        for member in _MEMBER.finditer(directory):
            size, header = (int.from_bytes(number, "little") for number in member.groups()[:2])
            start, name = header + _HEADER.size, member[3]
            if content[start : start + len(name)] == name:
                start += sum(_HEADER.unpack_from(content, header))
                members[name.partition(b"/")[2]] = slice(start, start + size)
    if not {b"data.pkl", b"data/0"} <= members.keys():
        return None
    form = _form(content[members[b"data.pkl"]])
    if form is None or content[members.get(b"byteorder", slice(0))] not in (b"little", b""):
        return None
    dtype, count, shape, strides = form
    elements = members[b"data/0"]
    array: Array = np.ndarray(shape, dtype, content, elements.start, strides)
    is_whole = array.flags.c_contiguous and elements.stop - elements.start == array.nbytes == count * dtype.itemsize
    return array if is_whole else None


@lru_cache(maxsize=256)
def _form(pickled: bytes) -> tuple[np.dtype[Any], int, tuple[int, ...], tuple[int, ...]] | None:
    """Return dtype, elements of the storage, shape, and strides in bytes; None of what is no plain tensor."""
    match = _PICKLE.fullmatch(pickled)
    dtype = None if match is None else _DTYPES_OF_STORAGES.get(match[1])
    if match is None or dtype is None:
        return None
    (count,), shape, strides = map(_numbers, match.groups()[1:])
    return dtype, count, shape, tuple(stride * dtype.itemsize for stride in strides)


def _numbers(pickled: bytes) -> tuple[int, ...]:
    numbers = re.findall(_NUMBER, pickled, re.DOTALL)
    return tuple(int.from_bytes(number[1:], "little", signed=number[:1] == b"J") for number in numbers)
