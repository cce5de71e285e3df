"""Which tensors of a record lie in one storage, as their entries say it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from msprobe_hooks.recording.tensor_entry import TensorEntry

#: Gives an entry like another, for one record alone.
Copied: TypeAlias = Callable[[TensorEntry], TensorEntry]


def own(entry: TensorEntry) -> TensorEntry:
    """Return an entry that no other record has."""
    return entry


def number_storages(record: dict[str, Any], storages: Sequence[int], copied: Copied) -> None:
    """Write into the entries of a record the number of each storage in which several of its tensors lie.

    ``storages`` is what the storage of each entry is known by, in their order; 0 where that is unknown.
    """
    counts = Counter(storages)
    numbers = {storage: place for place, storage in enumerate(one for one in counts if one and counts[one] > 1)}
    if numbers and _count(record) == len(storages):
        record.update(_numbered(record, iter(storages), numbers, copied))


def _count(part: Any) -> int:
    if isinstance(part, TensorEntry):
        return 1
    members = part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
    return sum(map(_count, members))


def _numbered(part: Any, storages: Iterator[int], numbers: Mapping[int, int], copied: Copied) -> Any:
    if isinstance(part, TensorEntry):
        number = numbers.get(next(storages))
        if number is not None:
            part = copied(part)
            part.storage = number
        return part
    if isinstance(part, dict):
        return {key: _numbered(item, storages, numbers, copied) for key, item in part.items()}
    if isinstance(part, list):
        return [_numbered(item, storages, numbers, copied) for item in part]
    return part
