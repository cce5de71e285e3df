"""Rows that belong to experts one after the other, as lists of their ends or of their sizes say."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import torch

from msprobe_hooks.dump.unread.effects import valid_rows_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor


def group_sizes(
    api: str, groups: Tensor | Sequence[int], rows: int, *, cumulative: bool, may_leave_rows: bool = False
) -> list[int]:
    """Return how many rows each group has; ``groups`` are their ends where they are ``cumulative``.

    Raises ValueError where a size is negative or they do not add up to ``rows``. Of an API that leaves rows behind the
    last group undefined, or leaves them out (``may_leave_rows``), they may add up to fewer.
    """
    numbers = [int(number) for number in groups]
    sizes = [end - start for start, end in pairwise([0, *numbers])] if cumulative else numbers
    may_leave_rows = may_leave_rows or valid_rows_of(api) is not None
    is_shared_out = sum(sizes) == rows or (sum(sizes) < rows and may_leave_rows)
    if min(sizes, default=0) < 0 or not is_shared_out:
        raise ValueError(f"the groups of {api} have sizes {sizes}, which do not share out {rows} rows")
    return sizes


def each_row(api: str, of_groups: Tensor, groups: Tensor | Sequence[int], rows: int, *, cumulative: bool) -> Tensor:
    """Repeat what groups have, one entry each along dimension 0, for each of their rows."""
    sizes = group_sizes(api, groups, rows, cumulative=cumulative)
    return of_groups.repeat_interleave(torch.tensor(sizes, device=of_groups.device), 0)
