"""Tokens in each layout, attention to selected keys, and the ranking that selects them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

from pytest_msprobe.extensions.npu_operators.arguments import at_least_float32, refuse

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Lengths of sequences, or in a packed tensor where each of them ends.
Lengths: TypeAlias = Tensor | Sequence[int] | None

# CANN's default, the greatest int64: every earlier or later token is attended to.
UNLIMITED = 9223372036854775807
# Scores of so many queries and keys are held at once.
_SCORES_AT_ONCE = 2**26


def numbers(lengths: Lengths) -> list[int]:
    """Return lengths as numbers; none for None."""
    return [] if lengths is None else [int(length) for length in lengths]


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
    return tuple(torch.cat(blocks) for blocks in zip(*parts, strict=True)) if len(parts) > 1 else parts[0]


def attend_selected(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    selected: Callable[[slice], Tensor],
    scale: float,
    sinks: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return softmax(scale * q k^T) v over selected keys, (S1, N1, Dv), and each row's maximum and sum, (S1, N1).

    ``q`` is (S1, N1, D), ``k`` (S2, N2, D) and ``v`` (S2, N2, Dv); N1 / N2 heads share one of the keys. ``selected``
    gives for some of the queries how often each key is selected, (rows, N2, N1 or 1, S2): a key that is selected twice
    counts twice. A query without keys gives 0 and has no gradient. ``sinks`` (N1) is for each head the score of one
    more key, whose value is 0. Maximum and sum, of exp(score - maximum), are detached and float32 or wider; without
    keys they are those of the sink, otherwise -inf and 0.
    """
    keys, values = k.transpose(0, 1), v.transpose(0, 1)
    of_sink = None if sinks is None else sinks.to(q.dtype).view(len(keys), -1, 1)

    def rows_of(rows: slice) -> tuple[Tensor, Tensor, Tensor]:
        times = _by_group(selected(rows), len(keys))
        scores = _products(_grouped(q[rows], len(keys)), keys.mT) * scale
        scores = scores.masked_fill(times == 0, -torch.inf)
        maximum = scores.detach().amax(-1) if k.shape[0] else scores.new_full(scores.shape[:-1], -torch.inf)
        if of_sink is not None:
            maximum = torch.maximum(maximum, of_sink.detach())
        weights = times * torch.exp(scores - maximum.masked_fill(maximum == -torch.inf, 0.0).unsqueeze(-1))
        total = weights.sum(-1)
        if of_sink is not None:
            total = total + torch.exp(of_sink - maximum)
        out = _products(weights, values) / total.masked_fill(total == 0, 1.0).unsqueeze(-1)
        highest, summed = (at_least_float32(_by_query(statistic)) for statistic in (maximum, total.detach()))
        return _by_query(out), highest, summed

    out, maximum, total = by_rows(rows_of, q.shape[0], q.shape[1] * k.shape[0])
    return out, maximum, total


def gradients_of_selected(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    selected: Callable[[slice], Tensor],
    scale: float,
    saved: tuple[Tensor, Tensor, Tensor],
    grad: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of :func:`attend_selected` for q, k and v.

    ``saved`` are the forward's output and, of each row, maximum and sum: the weights are exp(score - maximum) / sum.
    """
    out, maximum, total = saved[0], saved[1].to(q.dtype), saved[2].to(q.dtype)
    keys, values = k.transpose(0, 1), v.transpose(0, 1)
    grad_k, grad_v = torch.zeros_like(keys), torch.zeros_like(values)

    def rows_of(rows: slice) -> tuple[Tensor]:
        times = _by_group(selected(rows), len(keys))
        queries, arriving, there = (_grouped(operand[rows], len(keys)) for operand in (q, grad, out))
        highest, divisor = (_grouped(operand[rows].unsqueeze(-1), len(keys)) for operand in (maximum, total))
        exponents = _products(queries, keys.mT) * scale - highest
        weights = torch.exp(exponents.masked_fill(times == 0, -torch.inf)) * times
        weights = weights / divisor.masked_fill(divisor == 0, 1.0)
        along = (arriving * there).sum(-1, keepdim=True)
        of_scores = weights * (_products(arriving, values.mT) - along) * scale
        grad_k.add_(of_scores.flatten(1, 2).mT @ queries.flatten(1, 2))
        grad_v.add_(weights.flatten(1, 2).mT @ arriving.flatten(1, 2))
        return (_by_query(_products(of_scores, keys)),)

    (grad_q,) = by_rows(rows_of, q.shape[0], q.shape[1] * k.shape[0])
    return grad_q, grad_k.transpose(0, 1), grad_v.transpose(0, 1)


def _grouped(x: Tensor, keys: int) -> Tensor:
    """Return (N2, N1 / N2, rows, D) of (rows, N1, D), for ``keys`` N2."""
    return torch.unflatten(x.transpose(0, 1), 0, (keys, -1))


def _by_query(x: Tensor) -> Tensor:
    """Return (rows, N1, ...) of (N2, N1 / N2, rows, ...)."""
    return x.flatten(0, 1).transpose(0, 1)


def _by_group(times: Tensor, keys: int) -> Tensor:
    """Return (N2, 1, rows, S2) of (rows, N2, S2), or (N2, N1 / N2, rows, S2) of (rows, N1, S2); N may be 1 for all."""
    by_head = times.transpose(0, 1)
    return by_head.unsqueeze(1) if len(by_head) == 1 else torch.unflatten(by_head, 0, (keys, -1))


def _products(x: Tensor, y: Tensor) -> Tensor:
    """Multiply the rows of all heads that share a key, (N2, N1 / N2, rows, D), by one matrix for each, (N2, D, S)."""
    return torch.unflatten(x.flatten(1, 2) @ y, 1, x.shape[1:3])


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
    places = F.pad(positions[..., :count].int(), [0, missing], value=-1)
    return places.masked_fill(values == -torch.inf, -1), values
