"""The numbers that are recorded of a tensor."""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

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
