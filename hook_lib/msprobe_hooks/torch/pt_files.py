"""Tensors written as ``torch.save`` writes them, at the cost of one system call.

A ``.pt`` file is a zip archive that stores, uncompressed, ``data.pkl`` (what the tensor is, pickled), ``byteorder``,
``version`` and ``data/0`` (its elements); see ``torch/serialization.py`` and ``caffe2/serialize/inline_container.h`` in
PyTorch. All but the elements and their CRC-32 depends on dtype and shape alone.
"""

from __future__ import annotations

import struct
import sys
import zlib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

import torch

from msprobe_hooks.recording.checksums import crc32_number
from msprobe_hooks.recording.vectored_write import write_gathered

#: Larger ones need zip64, which is torch's to write.
MOST_BYTES: Final = 2**31

# torch.save names these by the classes that their storages once had, all others by the dtype.
_STORAGES: Final = {
    torch.float64: "DoubleStorage",
    torch.float32: "FloatStorage",
    torch.float16: "HalfStorage",
    torch.bfloat16: "BFloat16Storage",
    torch.int64: "LongStorage",
    torch.int32: "IntStorage",
    torch.int16: "ShortStorage",
    torch.int8: "CharStorage",
    torch.uint8: "ByteStorage",
    torch.bool: "BoolStorage",
    torch.complex64: "ComplexFloatStorage",
    torch.complex128: "ComplexDoubleStorage",
}

_LOCAL, _CENTRAL, _END = struct.Struct("<4s5H3I2H"), struct.Struct("<4s6H3I5H2I"), struct.Struct("<4s4H2IH")
_CRC = struct.Struct("<I")
_CRC_IN_LOCAL, _CRC_IN_CENTRAL = 14, 16
# 1 January 1980, the first day that the format knows.
_DATE = 1 << 5 | 1
# As torch does, so that mapped elements are aligned for any vector unit.
_ALIGNMENT = 64
_PADDING_FIELD = b"FB"


def write_pt(path: Path, dtype: torch.dtype, shape: tuple[int, ...], elements: memoryview) -> None:
    """Write a tensor's file from its contiguous elements, a view of bytes. Raises OSError."""
    frame = _frame(dtype, shape)
    checksum = _CRC.pack(crc32_number(elements))
    head = frame.before_crc + checksum + frame.after_crc
    write_gathered(path, (head, elements, frame.directory_before_crc + checksum + frame.directory_after_crc))


@dataclass(frozen=True, slots=True)
class _Frame:
    """What precedes and follows the elements, both cut where their CRC-32 belongs."""

    before_crc: bytes
    after_crc: bytes
    directory_before_crc: bytes
    directory_after_crc: bytes


@lru_cache(maxsize=1024)
def _frame(dtype: torch.dtype, shape: tuple[int, ...]) -> _Frame:
    count = torch.Size(shape).numel()
    size = count * dtype.itemsize
    head, directory = b"", b""
    for name, content in (
        (b"archive/data.pkl", _pickled(dtype, shape, count)),
        (b"archive/byteorder", sys.byteorder.encode()),
        (b"archive/version", b"3\n"),
    ):
        checksum = zlib.crc32(content)
        directory += _central(name, checksum, len(content), len(head))
        head += _local(name, checksum, len(content)) + content
    name = b"archive/data/0"
    before = len(head) + _LOCAL.size + len(name) + 4
    padding = -before % _ALIGNMENT
    extra = _PADDING_FIELD + padding.to_bytes(2, "little") + bytes(padding)
    cut = len(head) + _CRC_IN_LOCAL
    cut_in_directory = len(directory) + _CRC_IN_CENTRAL
    directory += _central(name, 0, size, len(head))
    head += _local(name, 0, size, extra)
    end = _END.pack(b"PK\5\6", 0, 0, 4, 4, len(directory), len(head) + size, 0)
    directory += end
    return _Frame(
        head[:cut], head[cut + _CRC.size :], directory[:cut_in_directory], directory[cut_in_directory + _CRC.size :]
    )


def _local(name: bytes, checksum: int, size: int, extra: bytes = b"") -> bytes:
    return _LOCAL.pack(b"PK\3\4", 0, 0, 0, 0, _DATE, checksum, size, size, len(name), len(extra)) + name + extra


def _central(name: bytes, checksum: int, size: int, place: int) -> bytes:
    return _CENTRAL.pack(b"PK\1\2", 0, 0, 0, 0, 0, _DATE, checksum, size, size, len(name), 0, 0, 0, 0, 0, place) + name


def _pickled(dtype: torch.dtype, shape: tuple[int, ...], count: int) -> bytes:
    """Return the pickle, protocol 2, of a contiguous tensor: the call that makes it of its storage."""
    storage = _STORAGES.get(dtype)
    version, kind, length = (
        (b"3", b"torch.storage\nUntypedStorage", count * dtype.itemsize)
        if storage is None
        else (b"2", b"torch\n" + storage.encode(), count)
    )
    strides = torch.empty(shape, device="meta").stride()
    return b"".join(
        (
            b"\x80\x02ctorch._utils\n_rebuild_tensor_v" + version + b"\n(",
            b"(" + _text(b"storage") + b"c" + kind + b"\n" + _text(b"0") + _text(b"cpu") + _number(length) + b"tQ",
            _number(0) + _numbers(shape) + _numbers(strides),
            # No gradient is asked for, and there are no hooks.
            b"\x89ccollections\nOrderedDict\n)R",
            b"c" + str(dtype).replace(".", "\n").encode() + b"\n" if storage is None else b"",
            b"tR.",
        )
    )


def _text(text: bytes) -> bytes:
    return b"X" + len(text).to_bytes(4, "little") + text


def _numbers(values: tuple[int, ...]) -> bytes:
    return b"(" + b"".join(map(_number, values)) + b"t"


def _number(value: int) -> bytes:
    """Return an integer of at most 8 bytes: those above 31 bits as a long one."""
    if value < 2**31:
        return b"J" + value.to_bytes(4, "little")
    return b"\x8a\x09" + value.to_bytes(9, "little")
