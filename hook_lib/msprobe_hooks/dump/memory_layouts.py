"""Memory layout of recorded tensors, and its decoding.

An entry names what differs from a contiguous tensor at the start of a storage of its own: ``memory_format`` or
``stride``, ``storage_offset``, ``storage_size``, ``is_conj`` and ``is_neg``, and by ``storage`` which tensors of a
record share their memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from operator import mul
from typing import Any, NoReturn

import msgspec

from msprobe_hooks.errors import RecordError
from msprobe_hooks.messages import shown

#: The keys of an entry that describe its layout.
LAYOUT_KEYS = ("memory_format", "stride", "storage_offset", "storage_size", "storage", "is_conj", "is_neg")

# So many elements no storage has.
_TOO_MANY_ELEMENTS = 2**63
# The sizes in the order in which they lie in memory, the outermost first.
_CHANNELS_LAST = {"channels_last": (0, 2, 3, 1), "channels_last_3d": (0, 2, 3, 4, 1)}


class Layout(msgspec.Struct, frozen=True):
    """Position of a tensor in memory; numbers count elements of its dtype.

    Attributes:
        stride: The distance of neighbours along each dimension.
        storage_offset: The place of its first element in its storage.
        storage_size: The size of the storage, where it is larger than what the tensor spans.
        storage: The number of the storage among those that several tensors of the record's direction share.
        derived: Whether it was concluded from the calls before it and not recorded.
        is_conj: Whether memory holds the conjugates of its elements: the conjugate bit of torch.
        is_neg: Whether memory holds its elements with the other sign: the negative bit of torch.
    """

    stride: tuple[int, ...]
    storage_offset: int = 0
    storage_size: int | None = None
    storage: int | None = None
    derived: bool = False
    is_conj: bool = False
    is_neg: bool = False

    def resolved(self) -> Layout:
        """Return the layout without lazy bits; one that had them is of a storage of its own."""
        is_lazy = self.is_conj or self.is_neg
        return msgspec.structs.replace(self, is_conj=False, is_neg=False, storage=None) if is_lazy else self


def contiguous_stride(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of a contiguous tensor."""
    return tuple(accumulate((max(size, 1) for size in shape[:0:-1]), mul, initial=1))[::-1] if shape else ()


def format_stride(memory_format: str, shape: Sequence[int]) -> tuple[int, ...] | None:
    """Return the strides that a memory format gives a shape, None where it has none for so many dimensions."""
    if memory_format == "contiguous_format":
        return contiguous_stride(shape)
    order = _CHANNELS_LAST.get(memory_format)
    if order is None or len(order) != len(shape):
        return None
    inner = contiguous_stride([shape[place] for place in order])
    return tuple(inner[order.index(place)] for place in range(len(order)))


def span(shape: Sequence[int], stride: Sequence[int]) -> int:
    """Return the number of elements from a tensor's first one in memory to its last one."""
    if 0 in shape:
        return 0
    return 1 + sum((size - 1) * step for size, step in zip(shape, stride, strict=True))


def layout_of(fields: Mapping[str, Any], shape: Sequence[int], path: str) -> Layout | None:
    """Return the layout that an entry names, None where it names none.

    Raises RecordError with the JSON path of what no tensor of the shape can have.
    """
    if fields.keys().isdisjoint(LAYOUT_KEYS):
        return None
    stride = _stride(fields, shape, path)
    offset = _whole(fields, "storage_offset", path) or 0
    size = _whole(fields, "storage_size", path)
    end = offset + span(shape, stride)
    if end >= _TOO_MANY_ELEMENTS:
        _refuse(f"{path}.stride", "strides within 2**63 elements", list(stride))
    if size is not None and size < end:
        _refuse(f"{path}.storage_size", f"{end} elements or more, which the tensor spans", size)
    is_conj, is_neg = fields.get("is_conj") is True, fields.get("is_neg") is True
    return Layout(stride, offset, size, _whole(fields, "storage", path), is_conj=is_conj, is_neg=is_neg)


def _stride(fields: Mapping[str, Any], shape: Sequence[int], path: str) -> tuple[int, ...]:
    stride, memory_format = fields.get("stride"), fields.get("memory_format")
    if stride is not None:
        if not isinstance(stride, list) or len(stride) != len(shape) or not all(map(_is_size, stride)):
            _refuse(f"{path}.stride", f"{len(shape)} whole numbers from 0", stride)
        return tuple(stride)
    if memory_format is None:
        return contiguous_stride(shape)
    named = format_stride(memory_format, shape) if isinstance(memory_format, str) else None
    if named is None:
        _refuse(f"{path}.memory_format", f"a memory format of {len(shape)} dimensions", memory_format)
    return named


def _whole(fields: Mapping[str, Any], key: str, path: str) -> int | None:
    value = fields.get(key)
    if value is not None and not _is_size(value):
        _refuse(f"{path}.{key}", "a whole number from 0", value)
    return value


def _is_size(value: object) -> bool:
    return type(value) is int and 0 <= value < _TOO_MANY_ELEMENTS


def _refuse(path: str, expected: str, value: object) -> NoReturn:
    raise RecordError(path, f"expected {expected}, found {shown(value)}")


def layout_fields(layout: Layout) -> dict[str, Any]:
    """Return the keys of an entry that name a layout."""
    fields: dict[str, Any] = {"stride": list(layout.stride)}
    if layout.storage_offset:
        fields["storage_offset"] = layout.storage_offset
    if layout.storage_size is not None:
        fields["storage_size"] = layout.storage_size
    if layout.storage is not None:
        fields["storage"] = layout.storage
    return fields | {name: True for name in ("is_conj", "is_neg") if getattr(layout, name)}
