"""The entry of a tensor, as it is written."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from msprobe_hooks.dump.writer import json_number
from msprobe_hooks.recording.statistics import Statistics


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
