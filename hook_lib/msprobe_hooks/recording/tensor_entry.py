"""The entry of a tensor as it is written: statistics, and storages that tensors of a record share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from msprobe_hooks.dump.writer import json_number

Number: TypeAlias = float | int | bool


class Statistics(msgspec.Struct, eq=False):
    """The numbers of one tensor; finite extrema and counts are there only where the plain extrema are not finite.

    ``nan_count``, ``posinf_count`` and ``neginf_count`` say how many elements are NaN, +inf and -inf.
    ``is_waiting`` says that some are still to come; ``entry`` is what records share that say these of a tensor,
    ``storage`` what the tensor's storage is known by.
    """

    max: Number | None = None
    min: Number | None = None
    mean: Number | None = None
    norm: Number | None = None
    finite_max: float | None = None
    finite_min: float | None = None
    nan_count: int | None = None
    posinf_count: int | None = None
    neginf_count: int | None = None
    checksum: str | None = None
    #: That all of them are known to be finite.
    is_finite: bool = False
    is_waiting: bool = False
    entry: Any = None
    storage: int = 0


class TensorEntry(msgspec.Struct, gc=False):
    """A tensor as written; the field names and their order are the file's. Nothing in it leads back to it."""

    type: str
    dtype: str
    shape: list[int]
    Max: Any = UNSET
    Min: Any = UNSET
    Mean: Any = UNSET
    Norm: Any = UNSET
    requires_grad: bool | UnsetType = UNSET
    Max_except_inf_nan: Any = UNSET
    Min_except_inf_nan: Any = UNSET
    nan_count: int | UnsetType = UNSET
    posinf_count: int | UnsetType = UNSET
    neginf_count: int | UnsetType = UNSET
    md5: str | UnsetType = UNSET
    data_name: str | UnsetType = UNSET
    memory_format: str | UnsetType = UNSET
    stride: list[int] | UnsetType = UNSET
    storage_offset: int | UnsetType = UNSET
    storage_size: int | UnsetType = UNSET
    storage: int | UnsetType = UNSET
    is_conj: bool | UnsetType = UNSET
    is_neg: bool | UnsetType = UNSET
    nnz: int | UnsetType = UNSET
    is_coalesced: bool | UnsetType = UNSET
    device_mesh: list[int] | UnsetType = UNSET
    placements: list[Any] | UnsetType = UNSET

    def fill(self, statistics: Statistics) -> None:
        """Take over the numbers."""
        if statistics.is_finite:
            self.Max = statistics.max
            self.Min = statistics.min
            self.Mean = statistics.mean
            self.Norm = statistics.norm
        else:
            self.Max = json_number(statistics.max)
            self.Min = json_number(statistics.min)
            self.Mean = json_number(statistics.mean)
            self.Norm = json_number(statistics.norm)
            if statistics.finite_max is not None:
                self.Max_except_inf_nan = json_number(statistics.finite_max)
            if statistics.finite_min is not None:
                self.Min_except_inf_nan = json_number(statistics.finite_min)
            if statistics.nan_count is not None:
                self.nan_count = statistics.nan_count
                self.posinf_count = UNSET if statistics.posinf_count is None else statistics.posinf_count
                self.neginf_count = UNSET if statistics.neginf_count is None else statistics.neginf_count
        if statistics.checksum is not None:
            self.md5 = statistics.checksum


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
