"""Tokens of several sequences in one tensor: batched (BSND), packed (TND) or in pages of a cache (PA_BSND)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

from pytest_msprobe.extensions.npu_operators.reference_arguments import refuse

#: Lengths of sequences, or in a packed tensor where each of them ends.
Lengths: TypeAlias = Tensor | Sequence[int] | None

# CANN's default, the greatest int64: every earlier or later token is attended to.
UNLIMITED = 9223372036854775807
# Scores of so many queries and keys are held at once.
_SCORES_AT_ONCE = 2**26


def numbers(lengths: Lengths) -> list[int]:
    """Return lengths as numbers; none for None."""
    return [] if lengths is None else [int(each) for each in lengths]


def split_packed(api: str, lengths: Lengths) -> list[int]:
    """Return the lengths of packed sequences, given their ends. Raises ValueError where there are none."""
    ends = numbers(lengths)
    if not ends:
        raise ValueError(f"layout TND of {api} needs to know where each sequence ends")
    return [max(0, end - start) for start, end in pairwise([0, *ends])]


def sequences(api: str, tensor: Tensor, layout: str, lengths: Lengths, table: Tensor | None = None) -> list[Tensor]:
    """Return the tokens of each sequence, (S, ...), of a tensor in ``layout``.

    ``lengths`` are the ends of the sequences for TND; for BSND and PA_BSND their lengths, all that there is without
    them. PA_BSND holds pages of tokens, (pages, page size, ...), and a row of ``table`` says which are a sequence's.
    Raises ValueError where the ends or the table are missing, and NotImplementedError for another layout.
    """
    if layout == "TND":
        shares = split_packed(api, lengths)
        return list(torch.split(tensor[: sum(shares)], shares))
    if layout == "PA_BSND":
        if table is None:
            raise ValueError(f"layout PA_BSND of {api} needs block_table")
        tensor = torch.stack([tensor[pages].flatten(0, 1) for pages in table.long().clamp(0, len(tensor) - 1)])
    else:
        refuse(api, layout=None if layout == "BSND" else layout)
    counts = numbers(lengths) or [tensor.shape[1]] * len(tensor)
    return [tokens[:count] for tokens, count in zip(tensor, counts, strict=True)]


def joined(parts: Sequence[Tensor], rows: int, layout: str, fill: float = 0) -> Tensor:
    """Return the parts of sequences in a tensor of ``layout``, of ``rows`` in all for TND, of each one for BSND.

    Rows that belong to no sequence hold ``fill``.
    """
    if layout == "TND":
        return _filled(torch.cat(list(parts)), rows, fill)
    return torch.stack([_filled(part, rows, fill) for part in parts])


def _filled(part: Tensor, rows: int, fill: float) -> Tensor:
    missing = rows - len(part)
    return F.pad(part, [0, 0] * (part.dim() - 1) + [0, missing], value=fill) if missing else part


def row_count(tensor: Tensor, layout: str) -> int:
    """Return how many rows a tensor of ``layout`` has, of each sequence for BSND."""
    return tensor.shape[0] if layout == "TND" else tensor.shape[1]


def visible_counts(api: str, sparse_mode: int | None, rows: int, columns: int, **tokens: int | None) -> Tensor:
    """Return how many of the first keys each query sees, (rows,).

    In ``sparse_mode`` 0 these are all, in mode 3 those up to the diagonal that ends at the bottom right. Raises
    NotImplementedError for other modes, and in mode 0 for a window of ``tokens``, ``pre_tokens`` and ``next_tokens``.
    """
    if sparse_mode == 0:
        refuse(api, **{name: None if count in (None, UNLIMITED) else count for name, count in tokens.items()})
        return torch.full((rows,), columns)
    refuse(api, sparse_mode=None if sparse_mode in (None, 3) else sparse_mode)
    return (torch.arange(rows) + columns - rows + 1).clamp(0, columns)


def visible_keys(counts: Tensor, columns: int) -> Tensor:
    """Return whether a key is among the first ``counts`` (rows,) that a query sees, (rows, columns)."""
    return torch.arange(columns) < counts.unsqueeze(-1)


def times_selected(blocks: Tensor, size: int, columns: int) -> Tensor:
    """Return how often ``blocks`` (..., k) of ``size`` keys select each of the keys, (..., columns).

    A block that is negative ends the selected ones.
    """
    ended = (blocks < 0).cummax(-1).values
    there = -(-columns // size)
    # one more block takes what is not selected
    places = blocks.long().masked_fill(ended, there).clamp(max=there)
    counts = torch.zeros(*blocks.shape[:-1], there + 1, dtype=torch.int32)
    counts.scatter_add_(-1, places, torch.ones_like(places, dtype=torch.int32))
    return counts[..., :there].repeat_interleave(size, -1)[..., :columns]


def by_rows(compute: Callable[[slice], tuple[Tensor, ...]], rows: int, scores_per_row: int) -> tuple[Tensor, ...]:
    """Return what ``compute`` gives for all rows, computed for as many at a time as memory allows."""
    step = max(1, _SCORES_AT_ONCE // max(1, scores_per_row))
    parts = [compute(slice(start, start + step)) for start in range(0, max(rows, 1), step)]
    return tuple(torch.cat(each) for each in zip(*parts, strict=True)) if len(parts) > 1 else parts[0]
