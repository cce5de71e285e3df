"""Attention of inference, one sequence after the other: what its operators share, whatever they call it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from pytest_msprobe.extensions.npu_operators.arguments import at_least_float32, refuse
from pytest_msprobe.extensions.npu_operators.attention.attention_core import AttentionMask, attend
from pytest_msprobe.extensions.npu_operators.attention.inference_sequences import (
    SequenceLayout,
    Span,
    joined,
    spans_of,
)
from pytest_msprobe.extensions.npu_operators.quantization.quantization import rounded

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from pytest_msprobe.extensions.npu_operators.attention.inference_sequences import Keys, SequenceKeys

#: CANN's default, the greatest int32: every earlier or later token is attended to.
UNLIMITED = 2147483647
_MODES = (0, 1, 2, 3, 4)
# the mode in which a whole mask is read, without a band
_WHOLE = 1
# the side of the triangle that is read in modes 2 to 4
_COMPRESSED = 2048


@dataclass(frozen=True, slots=True)
class Queries:
    """The arguments that say what the queries are and what is done with their scores.

    ``lengths`` are those of the queries, ``rows_behind`` how many rows are behind the last query of each sequence;
    ``query_rope`` are further dimensions of the queries, ``pse_shift`` is added to scaled scores. With ``quant_scale``
    results are round(result * quant_scale + quant_offset) in int8; the parameters hold one number, or N * D of them.
    """

    query: Tensor
    input_layout: str
    heads: int
    scale: float
    mask: Tensor | None
    lengths: Sequence[int] | None = None
    lengths_name: str = "actual_seq_lengths"
    sparse_mode: int = _WHOLE
    pre_tokens: int = UNLIMITED
    next_tokens: int = UNLIMITED
    query_rope: Tensor | None = None
    pse_shift: Tensor | None = None
    rows_behind: int | None = None
    sink: Tensor | None = None
    quant_scale: Tensor | None = None
    quant_offset: Tensor | None = None


def attention_of_sequences(api: str, queries: Queries, keys: Keys) -> tuple[Tensor, Tensor]:
    """Return softmax(mask(scale * q k^T + pse_shift)) v in the layout of results, and log(sum(exp(scores))).

    The second result is (B, N, S, 1), or (T, N, 1) of packed sequences. Rows that belong to no sequence, and those
    with everything hidden, are 0, with an infinite second result: CANN's kernels clear their results to that. One
    query of a batch entry, without rope parts, reads the whole mask, whatever the sparse mode, and has no length.

    Raises NotImplementedError for another layout and for queries in whole numbers, ValueError for another mode.
    """
    layout = SequenceLayout.of(api, queries.input_layout)
    refuse(api, **{f"query of {queries.query.dtype}": None if queries.query.is_floating_point() else queries.query})
    query = layout.with_entries(queries.query, queries.heads)
    if queries.query_rope is not None:
        query = torch.cat((query, layout.with_entries(queries.query_rope, queries.heads).to(query.dtype)), -1)
    is_one_query = query.shape[2] == 1 and not layout.is_packed
    lengths = None if is_one_query else queries.lengths
    spans = spans_of(api, layout, query, lengths, queries.lengths_name, queries.rows_behind)
    parts, statistics = [], []
    for index, (span, own) in enumerate(zip(spans, keys.of_sequences(api, layout, query.dtype), strict=True)):
        hidden = _hidden(api, queries, is_one_query, index, span, own)
        bias = _shift(queries.pse_shift, index, span, own)
        # scaled before the shift is added, which scales both
        q = (query[span.entry, :, span.rows] * queries.scale).unsqueeze(0)
        k, v = own.key.unsqueeze(0), own.value.unsqueeze(0)
        out, maximum, total = (part[0] for part in attend(q, k, v, bias, hidden, 1.0, 1.0, queries.sink))
        parts.append(out if queries.quant_scale is None else _quantized(out, queries.quant_scale, queries.quant_offset))
        statistics.append((maximum + total.log()).masked_fill(total == 0, torch.inf))
    entries, rows = query.shape[0], query.shape[2]
    result = layout.laid_out(joined(parts, spans, entries, rows))
    return result, layout.laid_out_statistic(joined(statistics, spans, entries, rows, torch.inf))


def _hidden(api: str, queries: Queries, is_one_query: bool, index: int, span: Span, own: SequenceKeys) -> Tensor | None:
    """Return what is hidden of the scores of one sequence, broadcastable to (1, N, rows, columns); None: nothing."""
    if queries.sparse_mode not in _MODES:
        raise ValueError(f"sparse_mode {queries.sparse_mode} of {api} is not one of {_MODES}")
    mask, mode = queries.mask, queries.sparse_mode
    if mask is None:
        return None
    pre_tokens, next_tokens = queries.pre_tokens, queries.next_tokens
    is_compressed = mask.shape[-2:] == (_COMPRESSED, _COMPRESSED)
    if is_one_query and queries.query_rope is None and not (mode in (2, 3, 4) and is_compressed):
        mask, mode = mask.reshape(-1, 1, 1, mask.shape[-1]), _WHOLE
    elif queries.rows_behind is not None or own.first_column:
        # documented for paddings on the left
        pre_tokens = next_tokens = UNLIMITED
    of_entry = _of_entry(mask, index)
    if mode in (0, _WHOLE):
        first_row = 0 if is_one_query else span.begin
        of_entry = of_entry[..., first_row:, own.first_column :]
    reader = AttentionMask(of_entry, mode, pre_tokens, next_tokens, None, False, api)
    return reader.of_batch(1, span.length, own.key.shape[1])


def _of_entry(mask: Tensor, entry: int) -> Tensor:
    """Return what a mask (..., Sq, Skv) hides in one batch entry, with dimensions for it and for heads where it has."""
    if mask.dim() == 2:
        return mask
    batched = mask.unsqueeze(1) if mask.dim() == 3 else mask
    return batched[entry : entry + 1] if batched.shape[0] > 1 else batched


def _shift(pse_shift: Tensor | None, index: int, span: Span, own: SequenceKeys) -> Tensor | None:
    """Return what is added to the scores of one sequence, of (B or 1, N, Sq, Skv), which may be larger than needed."""
    if pse_shift is None:
        return None
    last = own.first_column + own.key.shape[1]
    return _of_entry(pse_shift, index)[..., span.rows, own.first_column : last]


def _quantized(out: Tensor, scale: Tensor, offset: Tensor | None) -> Tensor:
    """Return round(out * scale + offset) in int8 of (N, S, D); the parameters hold one number, or N * D of them."""

    def laid(parameter: Tensor) -> Tensor:
        wide = at_least_float32(parameter)
        return wide.reshape(1) if wide.numel() == 1 else wide.reshape(out.shape[0], 1, -1)

    return rounded(at_least_float32(out) * laid(scale) + (0 if offset is None else laid(offset)))
