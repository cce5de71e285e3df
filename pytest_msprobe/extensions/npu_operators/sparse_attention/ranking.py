"""Scores of the keys, or blocks of keys, of several sequences, and the positions of the highest."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F

from pytest_msprobe.extensions.npu_operators.sparse_attention.token_layouts import joined

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor


def aligned(scores: Sequence[Tensor], rows: int, layout: str) -> Tensor:
    """Return the scores (S1, N, S2) of sequences in one tensor, -inf where one has fewer keys or queries."""
    longest = max(part.shape[-1] for part in scores)
    wide = [F.pad(part, [0, longest - part.shape[-1]], value=-torch.inf) for part in scores]
    return joined(wide, rows, layout, -torch.inf)


def highest(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the positions (int32) and the values of the highest scores, in order, the earlier of equal ones first.

    Where there are fewer than ``count``, that is where scores are -inf, positions are -1 and values -inf.
    """
    ordered, positions = scores.sort(dim=-1, descending=True, stable=True)
    missing = max(0, count - scores.shape[-1])
    values = F.pad(ordered[..., :count], [0, missing], value=-torch.inf)
    chosen = F.pad(positions[..., :count].int(), [0, missing], value=-1)
    return chosen.masked_fill(values == -torch.inf, -1), values
