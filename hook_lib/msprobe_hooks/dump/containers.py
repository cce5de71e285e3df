"""Containers: files in safetensors' format that hold the tensors of many records, torch not needed.

A container is 8 bytes with the length of a JSON header, little-endian, the header, and the elements; the header has
dtype, shape and the first and last byte of each tensor by its name, counted from the header's end
(https://huggingface.co/docs/safetensors/index#format). A record says ``0.safetensors::Torch.relu.0.forward.input.0``.
A dtype that not every version of the format knows is stored as its bytes, one more dimension of U8; its name is in
``__metadata__`` under the tensor's. A tensor that is compressed is stored as the bytes of its frame, of U8 too; there
is ``{"dtype": "float32", "shape": [2, 3], "codec": "zstd-shuffle"}`` (see `compression`).
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterable, Mapping
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from msprobe_hooks.errors import DumpError, MissingCodecError
from msprobe_hooks.json_decoding import JsonError, decode_json
from msprobe_hooks.messages import clipped
from msprobe_hooks.regular_files import open_regular

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


SUFFIX: Final = ".safetensors"
#: What the format calls dtypes, by torch's names of them: those that every version since 0.4 knows.
FORMAT_DTYPES: Final[Mapping[str, str]] = {
    "float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16",
    "int64": "I64", "int32": "I32", "int16": "I16", "int8": "I8",
    "uint64": "U64", "uint32": "U32", "uint16": "U16", "uint8": "U8", "bool": "BOOL",
    "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2",
}  # fmt: skip

_NAME = re.compile(rf"([0-9]+{re.escape(SUFFIX)})::(.+)", re.DOTALL)
_METADATA = "__metadata__"
_BYTES = "U8"
# With how many bytes an element takes.
_STORED_AS_BYTES = {"complex64": 8, "complex128": 16, "float8_e4m3fnuz": 1, "float8_e5m2fnuz": 1}
_TORCH_DTYPES = {
    **{name: dtype for dtype, name in FORMAT_DTYPES.items()},
    "F8_E4M3FNUZ": "float8_e4m3fnuz", "F8_E5M2FNUZ": "float8_e5m2fnuz", "C64": "complex64",
}  # fmt: skip
_ITEM_SIZES = {"F64": 8, "I64": 8, "U64": 8, "C64": 8, "F32": 4, "I32": 4, "U32": 4}
_ITEM_SIZES |= {"F16": 2, "BF16": 2, "I16": 2, "U16": 2}
_LENGTH_BYTES = 8
# The library reads no longer ones.
_LONGEST_HEADER = 100_000_000
# More than any framework has, and few enough to be multiplied.
_MOST_DIMENSIONS = 100
# So that mapped elements are aligned for any vector unit.
_ALIGNMENT = 64
_REMEDY = "copy the file or record the step again"

#: What a container calls this form of a tensor.
CODEC: Final = "zstd-shuffle"
REMEDY: Final = "pip install 'pytest-msprobe[compression]'"

# Smaller ones take more to describe than they save.
_LEAST_BYTES = 1024
# A frame that saves less than a sixteenth is not worth the time to read it.
_LEAST_SHARE = 16
#: How many bytes one of a frame can stand for: its smallest block takes 4 bytes and holds 128 KiB.
MOST_GROWTH: Final = 2**15


class Contained(NamedTuple):
    """A tensor in a container: its name, torch's name of its dtype, its shape, at which bytes of the file it lies.

    Where there is a ``codec``, these bytes are a frame of it.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    size: int
    codec: str | None = None

    @property
    def element_bytes(self) -> int:
        """Return how many bytes its elements take when they are not compressed."""
        return math.prod(self.shape) * _item_size(self.dtype)


class Described(NamedTuple):
    """A tensor that is to be written: its name, torch's name of its dtype, its shape, the bytes of one element.

    The dtype is one of FORMAT_DTYPES, complex, or a float8 of the kinds ``fnuz``. ``frame`` is how many bytes the frame
    takes that is written in place of the elements, None where they are written.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    item_size: int
    frame: int | None = None


class _Entry(msgspec.Struct):
    dtype: str
    shape: tuple[int, ...]
    data_offsets: tuple[int, int]


class _Compressed(msgspec.Struct):
    dtype: str
    shape: tuple[int, ...]
    codec: str


def name_in(file: str, tensor: str) -> str:
    """Return what a record says of a tensor in a container."""
    return f"{file}::{tensor}"


def split_name(data_name: str) -> tuple[str, str] | None:
    """Return a container's file and the tensor's name in it, None where a record names a file of its own."""
    match = _NAME.fullmatch(data_name)
    return (match[1], match[2]) if match else None


def file_of(data_name: str) -> str:
    """Return the name of the file that holds a recorded tensor."""
    names = split_name(data_name)
    return data_name if names is None else names[0]


def beginning(tensors: Iterable[Described]) -> bytes:
    """Return what comes before the elements of tensors that follow each other without a gap."""
    metadata: dict[str, str] = {}
    header: dict[str, dict[str, str] | _Entry] = {_METADATA: metadata}
    end = 0
    for name, dtype, shape, item_size, frame in tensors:
        start, end = end, end + (math.prod(shape) * item_size if frame is None else frame)
        stored_as = FORMAT_DTYPES.get(dtype)
        if frame is not None:
            metadata[name] = msgspec.json.encode(_Compressed(dtype, shape, CODEC)).decode()
            stored_as, shape = _BYTES, (frame,)
        elif stored_as is None:
            metadata[name] = dtype
            stored_as, shape = _BYTES, (*shape, item_size)
        header[name] = _Entry(stored_as, shape, (start, end))
    text = msgspec.json.encode(header)
    text += b" " * (-(_LENGTH_BYTES + len(text)) % _ALIGNMENT)
    return len(text).to_bytes(_LENGTH_BYTES, "little") + text


def is_stored_as_bytes(metadata: str) -> bool:
    """Return whether what a file's metadata have under a tensor's name says that its bytes are those of another one."""
    return metadata in _STORED_AS_BYTES or metadata.startswith("{")


def find_tensor(path: Path, name: str) -> Contained:
    """Return where a tensor lies in a container.

    Raises DumpError, which names the file, where it holds none of this name or is not a container; OSError where it
    cannot be read.
    """
    tensor = _tensors_of(path).get(name)
    if tensor is None:
        raise DumpError(f"{path}: holds no tensor {clipped(name)!r}; the file belongs to another dump, {_REMEDY}")
    return tensor


def tensor_names(path: Path) -> list[str]:
    """Return the names of a container's tensors; raises as `find_tensor`."""
    return list(_tensors_of(path))


def _tensors_of(path: Path) -> Mapping[str, Contained]:
    status = path.stat()
    return _tensors(path, status.st_size, status.st_mtime_ns)


def read_elements(path: Path, tensor: Contained, *, mapped: bool = False) -> NDArray[np.uint8]:
    """Return the bytes of a tensor's elements, left in the file where ``mapped`` and they are not compressed.

    Changing them leaves the file as it is. Raises DumpError, which names the file, where that has become shorter or
    the tensor's frame is damaged; MissingCodecError where it is compressed and the library that reads it is not
    installed; OSError where the file cannot be read.
    """
    import numpy as np

    if mapped and tensor.size and tensor.codec is None:
        return np.memmap(path, np.uint8, "c", tensor.start, (tensor.size,))
    elements = np.fromfile(path, np.uint8, tensor.size, offset=tensor.start)
    if elements.size != tensor.size:
        raise _refused(path, "the file is cut off")
    return elements if tensor.codec is None else _decompressed(path, tensor, elements)


def _decompressed(path: Path, tensor: Contained, frame: NDArray[np.uint8]) -> NDArray[np.uint8]:
    what = f"{path}: tensor {clipped(tensor.name)!r}"
    if tensor.codec != CODEC:
        codec = clipped(str(tensor.codec))
        raise DumpError(f"{what} is compressed as {codec!r}, which this version cannot read; upgrade pytest-msprobe")
    if not is_available():
        raise MissingCodecError(f"{what} is compressed, and zstandard is not installed; {REMEDY}")
    try:
        return decompressed(frame, _item_size(tensor.dtype), tensor.element_bytes)
    except FrameError as error:
        raise DumpError(f"{what} cannot be decompressed: {error}; {_REMEDY}") from None


def _item_size(dtype: str) -> int:
    """Return the bytes of an element, by torch's name of its dtype."""
    return _STORED_AS_BYTES.get(dtype) or _ITEM_SIZES.get(FORMAT_DTYPES[dtype], 1)


# A file that is written anew has another time or size.
@lru_cache(maxsize=16)
def _tensors(path: Path, size: int, changed: int) -> Mapping[str, Contained]:
    with open_regular(path) as file:
        length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
        begin = _LENGTH_BYTES + length
        if begin > size or length > _LONGEST_HEADER:
            raise _refused(path, f"its header declares {length} of {size} bytes")
        text = file.read(length)
    try:
        fields = decode_json(text, dict[str, msgspec.Raw])
        metadata = decode_json(fields.pop(_METADATA, msgspec.Raw(b"{}")), dict[str, str])
        entries = {name: decode_json(raw, _Entry) for name, raw in fields.items()}
    except JsonError as error:
        raise _refused(path, f"its header cannot be read: {error}") from None
    tensors = {
        name: _placed(path, name, entry, metadata.get(name), begin, size - begin) for name, entry in entries.items()
    }
    _require_apart(path, tensors)
    return tensors


def _placed(path: Path, name: str, entry: _Entry, stored_as: str | None, begin: int, total: int) -> Contained:
    """Return where an entry's elements lie in a file with so many bytes from ``begin`` on. Raises DumpError."""
    dtype, shape, (start, end) = _TORCH_DTYPES.get(entry.dtype), entry.shape, entry.data_offsets
    if dtype is None:
        raise _refused(path, f"tensor {clipped(name)!r} has unknown dtype {clipped(entry.dtype)!r}")
    size = math.prod(shape) * _ITEM_SIZES.get(entry.dtype, 1) if _is_possible(shape) else -1
    if size < 0 or end - start != size:
        raise _refused(
            path, f"tensor {clipped(name)!r} of shape {clipped(str(shape))} cannot take bytes {start} to {end}"
        )
    if not 0 <= start <= end <= total:
        raise _refused(path, f"tensor {clipped(name)!r} takes bytes {start} to {end} of {total}; the file is cut off")
    codec = None
    if stored_as is not None and stored_as.startswith("{"):
        dtype, shape, codec = _compressed(path, name, entry, stored_as)
    elif stored_as is not None:
        if entry.dtype != _BYTES or shape[-1:] != (_STORED_AS_BYTES.get(stored_as),):
            raise _refused(path, f"tensor {clipped(name)!r} is {entry.dtype}, not the bytes of {clipped(stored_as)!r}")
        dtype, shape = stored_as, shape[:-1]
    return Contained(name, dtype, shape, begin + start, size, codec)


def _compressed(path: Path, name: str, entry: _Entry, metadata: str) -> tuple[str, tuple[int, ...], str]:
    """Return dtype, shape and codec of what an entry's bytes are a frame of. Raises DumpError."""
    try:
        dtype, shape, codec = msgspec.structs.astuple(decode_json(metadata.encode(), _Compressed))
    except JsonError as error:
        raise _refused(path, f"the metadata of tensor {clipped(name)!r} cannot be read: {error}") from None
    is_known = dtype in FORMAT_DTYPES or dtype in _STORED_AS_BYTES
    if not is_known or not _is_possible(shape) or entry.dtype != _BYTES or len(entry.shape) != 1:
        what = f"{clipped(dtype)} of shape {clipped(str(shape))}"
        raise _refused(path, f"tensor {clipped(name)!r}, {entry.dtype}, is not a frame of {what}")
    return dtype, shape, codec


def _is_possible(shape: tuple[int, ...]) -> bool:
    return (
        len(shape) <= _MOST_DIMENSIONS
        and 0 <= min(shape, default=0) <= max(shape, default=0) <= sys.maxsize
        and math.prod(shape) <= sys.maxsize
    )


def _require_apart(path: Path, tensors: Mapping[str, Contained]) -> None:
    end, former = 0, ""
    for name, tensor in sorted(tensors.items(), key=lambda item: (item[1].start, item[1].size)):
        if tensor.size and tensor.start < end:
            raise _refused(path, f"tensors {clipped(former)!r} and {clipped(name)!r} overlap")
        end, former = max(end, tensor.start + tensor.size), name


def _refused(path: Path, problem: str) -> DumpError:
    return DumpError(f"{path}: not a usable container of tensors, {problem}; {_REMEDY}")


class FrameError(ValueError):
    """Bytes are not a frame of a tensor's elements; the text says why."""


def is_available() -> bool:
    """Return whether the library of the codec is installed."""
    return find_spec("zstandard") is not None


def compressed(elements: memoryview, item_size: int) -> bytes | None:
    """Return the frame of contiguous elements, given as single bytes; None where it would hardly be smaller.

    The interpreter's lock is not held meanwhile.
    """
    if len(elements) < _LEAST_BYTES:
        return None
    import numpy as np
    import zstandard

    # Noise repeats little: fewer searches for repetitions cost less and leave more to the entropy coder, which gains.
    parameters = zstandard.ZstdCompressionParameters.from_level(1, hash_log=6, min_match=7, write_checksum=True)
    frame = zstandard.ZstdCompressor(compression_params=parameters).compressobj(size=len(elements))
    pieces = []
    for plane in np.frombuffer(elements, np.uint8).reshape(-1, item_size).T:
        pieces.append(frame.compress(np.ascontiguousarray(plane).data))
        # A block has a code of its own.
        pieces.append(frame.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK))
    pieces.append(frame.flush())
    whole = b"".join(pieces)
    return whole if len(whole) <= len(elements) - len(elements) // _LEAST_SHARE else None


def decompressed(frame: NDArray[np.uint8], item_size: int, size: int) -> NDArray[np.uint8]:
    """Return the elements, ``size`` bytes, that a frame holds; no memory is taken for more than twice as many.

    Raises FrameError where it holds anything else, ImportError where the codec's library is not installed.
    """
    import numpy as np
    import zstandard

    try:
        content_size = zstandard.frame_content_size(frame.data)
        if content_size != size or size > len(frame) * MOST_GROWTH:
            raise FrameError(
                f"its {len(frame)} bytes cannot hold the {size} recorded ones; they declare {content_size}"
            )
        content = zstandard.ZstdDecompressor().decompress(frame.data, allow_extra_data=False)
        elements = np.empty((size // item_size, item_size), np.uint8)
    except zstandard.ZstdError as error:
        raise FrameError(str(error)) from None
    except MemoryError:
        raise FrameError(f"not enough memory for its {size / 2**30:.1f} GiB") from None
    for place, plane in enumerate(np.frombuffer(content, np.uint8).reshape(item_size, -1)):
        elements[:, place] = plane
    return elements.reshape(-1)
