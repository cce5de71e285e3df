"""Tensors written in batches: each to a ``.pt`` file as ``torch.save`` writes it, or a batch to a container."""

from __future__ import annotations

import os
import shutil
import struct
import sys
import threading
import zlib
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Final

import torch
from torch import Tensor

from msprobe_hooks.dump.containers import SUFFIX, Described, beginning, compressed, name_in
from msprobe_hooks.recording.checksums import crc32_number
from msprobe_hooks.recording.tensor_entry import Statistics
from msprobe_hooks.recording.tensor_files import TensorFiles
from msprobe_hooks.recording.vectored_write import Piece, write_gathered
from msprobe_hooks.torch.tensor_memory import is_expanded, without_repeats
from msprobe_hooks.torch.write_batches import Batch, Buffers, SavedBefore, Waiting

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

_SPARSE = frozenset({torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc})
_PLAIN_CLASSES = (Tensor, torch.nn.Parameter)
# Those that every torch copies; packed ones it may only know the bytes of.
_PLAIN_DTYPES = frozenset(
    {
        torch.float64, torch.float32, torch.float16, torch.bfloat16,
        torch.int64, torch.int32, torch.int16, torch.int8, torch.uint64, torch.uint32, torch.uint16, torch.uint8,
        torch.bool, torch.complex128, torch.complex64,
        torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz,
    }
)  # fmt: skip

# Expanded tensors of fewer bytes are written with all their elements, together with others.
_LARGE = 2**20


def write_pt(path: Path, dtype: torch.dtype, shape: tuple[int, ...], elements: memoryview) -> None:
    """Write a tensor's file from its contiguous elements, a view of bytes. Raises OSError."""
    frame = _frame(dtype, shape)
    checksum = _CRC.pack(crc32_number(elements))
    head = frame.before_crc + checksum + frame.after_crc
    write_gathered(path, (head, elements, frame.directory_before_crc + checksum + frame.directory_after_crc))


@dataclass(frozen=True, slots=True)
class _Frame:
    """Bytes before and after the elements, both cut where their CRC-32 belongs."""

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


class TorchTensorFiles(TensorFiles):
    """Saves tensors as ``torch.save`` does, plain ones in batches, any other by ``torch.save`` itself.

    A subclass may write a batch in another way.
    """

    def __init__(self, folder: Path, buffers: Buffers) -> None:
        super().__init__(folder)
        self._buffers = buffers
        self._batches = 0
        # Gradients arrive on threads of their own. A signal handler may interrupt a save and flush in its thread.
        self._gathering = threading.RLock()
        self._batch: Batch | None = None
        # The statistics are held, so that no others can have their id.
        self._saved: dict[tuple[int, torch.Size], tuple[Statistics, str]] = {}

    def copy(self, tensor: Tensor) -> Tensor:
        """Return a copy without a graph, contiguous where the layout has strides; what is expanded stays so."""
        tensor = tensor.detach()
        if tensor.layout is not torch.strided:
            return tensor.clone()
        if _is_plain(tensor) and is_expanded(tensor):
            return without_repeats(tensor).clone(memory_format=torch.contiguous_format).expand(tensor.shape)
        return tensor.clone(memory_format=torch.contiguous_format)

    def size(self, copy: Tensor) -> int:
        """Return the bytes of the elements, without repeats."""
        if _is_plain(copy) and is_expanded(copy):
            copy = without_repeats(copy)
        return (copy._nnz() if copy.layout in _SPARSE else copy.numel()) * copy.element_size()

    def write(self, copy: Tensor, path: Path) -> None:
        """Write a ``.pt`` file."""
        torch.save(copy, path)

    def save(self, tensor: Tensor, name: str, known_by: Statistics | None = None) -> str:
        """Write a tensor, and return what its record says of the file.

        ``known_by`` is one object for as long as the tensor does not change.
        """
        if not _is_plain(tensor):
            return super().save(tensor, name)
        size = tensor.numel() * tensor.element_size()
        if size >= MOST_BYTES or (size >= _LARGE and is_expanded(tensor)):
            return super().save(tensor, name)
        with self._gathering:
            # In place a tensor may get another shape and keep its numbers.
            key = (id(known_by), tensor.shape)
            former = None if known_by is None else self._saved.get(key)
            if former is not None:
                return self.share(name, former[1])
            batch = self.batch_for(size)
            batch.add(name, tensor.detach(), size)
            data_name = self.data_name(batch, name)
            if known_by is not None:
                self._saved[key] = (known_by, data_name)
        self.wait_for_room()
        return data_name

    def flush(self, seconds: float = -1) -> None:
        """Write what is gathered, unless a save in another thread takes longer than ``seconds``."""
        if not self._gathering.acquire(timeout=seconds):
            return
        try:
            self._hand_over()
        finally:
            self._gathering.release()

    def data_name(self, batch: Batch, name: str) -> str:
        """Return what a record says of a tensor that is in a batch under this name."""
        return name

    def share(self, name: str, former: str) -> str:
        """Write a tensor that was saved before, of which a record says ``former``, by its own name too.

        Returns what its record says.
        """
        self.batch_for(0).entries.append(SavedBefore(name, former))
        return name

    def write_batch(self, batch: Batch) -> None:
        """Write a batch, in the thread."""
        for entry in batch.entries:
            path = self.folder / entry.name
            if isinstance(entry, SavedBefore):
                self.attempt(partial(_share, self.folder / entry.former, path), 0, entry.name)
            else:
                self.attempt(partial(_write, entry, path), entry.size, entry.name)

    def batch_for(self, size: int) -> Batch:
        """Return the batch that takes the next tensor, of so many bytes."""
        if self._batch is not None and not self._batch.has_room(size):
            self._hand_over()
        if self._batch is None:
            self._batch = Batch(self._buffers.take(), self._batches)
            self._batches += 1
        return self._batch

    def _hand_over(self) -> None:
        batch, self._batch = self._batch, None
        if batch is not None:
            self.queue(partial(self._finish, batch), batch.size)

    def _finish(self, batch: Batch) -> None:
        self.write_batch(batch)
        self._buffers.give(batch.buffer)


def _is_plain(tensor: Tensor) -> bool:
    """Return whether all that is to be saved of a tensor are its elements, shape and dtype."""
    return (
        type(tensor) in _PLAIN_CLASSES
        and tensor.dtype in _PLAIN_DTYPES
        and tensor.layout is torch.strided
        and not (tensor.is_meta or tensor.is_nested or torch._C._functorch.is_functorch_wrapped_tensor(tensor))
    )


def _write(tensor: Waiting, path: Path) -> None:
    write_pt(path, tensor.dtype, tensor.shape, tensor.elements())


def _share(former: Path, path: Path) -> None:
    """Link a file under another name; where the file system has one name for each, copy it."""
    try:
        os.link(former, path)
    except OSError:
        path.unlink(missing_ok=True)
        shutil.copyfile(former, path)


class ContainerFiles(TorchTensorFiles):
    """Saves plain tensors in containers, one for each batch, any other by ``torch.save`` to a file of its own.

    A tensor that calls share, unchanged, is in one container; the record of each names it there. With ``compresses``
    those are compressed, in the thread, that become smaller by it; none while that would hold
    up the program.
    """

    def __init__(self, folder: Path, buffers: Buffers, *, compresses: bool = False) -> None:
        super().__init__(folder, buffers)
        self._compresses = compresses

    def data_name(self, batch: Batch, name: str) -> str:
        """Return the container's file and the tensor's name in it."""
        return name_in(_file_name(batch), _name(name))

    def share(self, name: str, former: str) -> str:
        """Return what the former record says."""
        return former

    def write_batch(self, batch: Batch) -> None:
        """Write a batch to its container."""
        file = _file_name(batch)
        self.attempt(partial(self._write, batch, self.folder / file), 0, file)

    def _write(self, batch: Batch, path: Path) -> None:
        """Write a container, under another name until it is whole."""
        # Of two tensors that are called alike the later one is kept, as of their files.
        tensors = {entry.name: entry for entry in batch.entries if isinstance(entry, Waiting)}
        stored = [_stored(tensor, self._compresses and not self.holds_up(batch.size)) for tensor in tensors.values()]
        # The format lets no gap between tensors, and where those of larger elements come first all are aligned.
        stored.sort(key=lambda pair: -pair[0].item_size if pair[0].frame is None else 0)
        pieces = [beginning(described for described, _ in stored), *(piece for _, piece in stored)]
        part = path.with_name(f"{path.name}.part")
        try:
            write_gathered(part, pieces)
            part.replace(path)
        except OSError:
            with suppress(OSError):
                part.unlink()
            raise
        self.bytes += sum(map(len, pieces))


def _file_name(batch: Batch) -> str:
    return f"{batch.number}{SUFFIX}"


def _name(file_name: str) -> str:
    """Return the name of a tensor whose own file would have this name: without suffix, as text that JSON can hold."""
    return file_name.removesuffix(".pt").encode(errors="backslashreplace").decode()


def _stored(tensor: Waiting, compresses: bool) -> tuple[Described, Piece]:
    """Return what a container says of a tensor, and what it holds: the elements or, where smaller, their frame."""
    elements, item_size = tensor.elements(), tensor.dtype.itemsize
    frame = compressed(elements, item_size) if compresses else None
    dtype = str(tensor.dtype).removeprefix("torch.")
    described = Described(_name(tensor.name), dtype, tensor.shape, item_size, None if frame is None else len(frame))
    return described, elements if frame is None else frame
