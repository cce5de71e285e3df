"""The lightning indexer, which selects the keys that a sparse attention looks at (DeepSeek-V3.2, 2025)."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from pytest_msprobe.engine.replay.ops.operators import golden
from pytest_msprobe.engine.replay.ops.selected_positions import RankedPositions
from pytest_msprobe.engine.replay.ops.traits import OpInfo
from pytest_msprobe.extensions.npu_operators.arguments import at_least_float32, refuse
from pytest_msprobe.extensions.npu_operators.inputs import selected_keys
from pytest_msprobe.extensions.npu_operators.sparse_attention.token_layouts import (
    UNLIMITED,
    Lengths,
    aligned,
    by_rows,
    highest,
    row_count,
    sequences,
    visible_counts,
    visible_keys,
)


def lightning_indexer_scores(query: Tensor, key: Tensor, weights: Tensor, **options: Any) -> Tensor:
    """Return what :func:`npu_lightning_indexer` takes the highest of, (B, S1, N2, S2) or (T1, N2, S2).

    It takes that operator's arguments. Keys that a query does not see have -inf.
    """
    return _scores("npu_lightning_indexer", query, weights, key, _given(options))


def quant_lightning_indexer_scores(
    query: Tensor,
    key: Tensor,
    weights: Tensor,
    query_dequant_scale: Tensor,
    key_dequant_scale: Tensor,
    query_quant_mode: int,
    key_quant_mode: int,
    **options: Any,
) -> Tensor:
    """Return what :func:`npu_quant_lightning_indexer` takes the highest of, as :func:`lightning_indexer_scores`."""
    quantized = (query, key, weights, query_dequant_scale, key_dequant_scale, query_quant_mode, key_quant_mode)
    return _quantized_scores(*quantized, _given(options))


@golden(
    "NPU.npu_lightning_indexer",
    OpInfo(
        constraint=selected_keys.indexer, selection=RankedPositions(lightning_indexer_scores, outputs=2, values_at=1)
    ),
)
def npu_lightning_indexer(
    query: Tensor, key: Tensor, weights: Tensor,
    *, actual_seq_lengths_query: Lengths = None, actual_seq_lengths_key: Lengths = None,
    block_table: Tensor | None = None, layout_query: str = "BSND", layout_key: str = "BSND",
    sparse_count: int = 2048, sparse_mode: int = 3, pre_tokens: int = UNLIMITED, next_tokens: int = UNLIMITED,
    return_value: bool = False,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return (positions, scores) of the ``sparse_count`` keys with the highest scores, highest first.

    The score of a key is the sum over heads h of weights[h] * relu(query[h] . key). ``query`` is (B, S1, N1, D) or, for
    TND, (T1, N1, D), ``weights`` the same without D, ``key`` (B, S2, N2, D), (T2, N2, D) or pages of a cache,
    (pages, page size, N2, D). Lengths are those of sequences, for TND their ends. In ``sparse_mode`` 3 a query sees the
    keys up to the diagonal that ends at the bottom right, in mode 0 all.

    Positions (int32) are (B, S1, N2, count) or (T1, N2, count), those of a sequence from 0; where fewer keys are seen
    the rest are -1, with scores of -inf. Of equal scores the earlier key comes first. Rows behind a sequence's length
    are -1 (assumed: op-plugin says nothing of them). Without ``return_value`` the second result is empty.

    Raises NotImplementedError for other modes and layouts.
    """
    where = _Where(
        actual_seq_lengths_query,
        actual_seq_lengths_key,
        block_table,
        layout_query,
        layout_key,
        sparse_mode,
        pre_tokens,
        next_tokens,
    )
    positions, values = highest(_scores("npu_lightning_indexer", query, weights, key, where), sparse_count)
    return positions, values if return_value else query.new_empty(0)


@golden(
    "NPU.npu_quant_lightning_indexer",
    OpInfo(constraint=selected_keys.indexer, selection=RankedPositions(quant_lightning_indexer_scores, outputs=1)),
)
def npu_quant_lightning_indexer(
    query: Tensor, key: Tensor, weights: Tensor, query_dequant_scale: Tensor, key_dequant_scale: Tensor,
    query_quant_mode: int, key_quant_mode: int,
    *, actual_seq_lengths_query: Lengths = None, actual_seq_lengths_key: Lengths = None,
    block_table: Tensor | None = None, layout_query: str = "BSND", layout_key: str = "BSND",
    sparse_count: int = 2048, sparse_mode: int = 3, pre_tokens: int = UNLIMITED, next_tokens: int = UNLIMITED,
    query_dtype: int | None = None, key_dtype: int | None = None,
) -> Tensor:  # fmt: skip
    """Return the positions that :func:`npu_lightning_indexer` does, of ``query`` and ``key`` times their scales.

    Each token of each head has a scale: ``query_dequant_scale`` is of the shape of ``weights``, ``key_dequant_scale``
    of that of ``key`` without D. Raises what that does, and NotImplementedError for another quantization mode than 0
    (by token and head) and for ``query_dtype`` and ``key_dtype``, with which bytes are numbers of another format.
    """
    refuse("npu_quant_lightning_indexer", query_dtype=query_dtype, key_dtype=key_dtype)
    where = _Where(
        actual_seq_lengths_query,
        actual_seq_lengths_key,
        block_table,
        layout_query,
        layout_key,
        sparse_mode,
        pre_tokens,
        next_tokens,
    )
    quantized = (query, key, weights, query_dequant_scale, key_dequant_scale, query_quant_mode, key_quant_mode)
    return highest(_quantized_scores(*quantized, where), sparse_count)[0]


@golden("Aten.npu_lightning_indexer_grad", OpInfo(constraint=selected_keys.indexer_gradient))
def npu_lightning_indexer_grad(
    query: Tensor, key: Tensor, dy: Tensor, sparse_indices: Tensor, weights: Tensor,
    actual_seq_lengths_query: Lengths = None, actual_seq_lengths_key: Lengths = None,
    layout: str | None = "BSND", sparse_mode: int | None = 3, pre_tokens: int | None = UNLIMITED,
    next_tokens: int | None = UNLIMITED,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Return the gradients of :func:`npu_lightning_indexer`'s scores for query, key and weights.

    ``dy`` and ``sparse_indices`` are (..., count) or (..., N2, count); what is not selected has no gradient. The mode
    says no more than the positions do, and is not read.
    """
    api, layout = "npu_lightning_indexer_grad", layout or "BSND"
    with torch.enable_grad():
        q, k, w = (operand.detach().requires_grad_() for operand in (query, key, weights))
        split = [sequences(api, operand, layout, actual_seq_lengths_query) for operand in (q, w, dy, sparse_indices)]
        there = sequences(api, k, layout, actual_seq_lengths_key)
        total = q.new_zeros(())
        for queries, factors, arriving, selection, keys in zip(*split, there, strict=True):
            selected = selection.reshape(len(selection), keys.shape[1], selection.shape[-1]).long()
            scores = index_scores(queries, factors, keys).gather(-1, selected.clamp(min=0))
            total = total + (scores * arriving.reshape_as(scores)).masked_fill(selected < 0, 0.0).sum()
        gradients = torch.autograd.grad(total, (q, k, w), allow_unused=True)
    of_query, of_key, of_weights = (
        torch.zeros_like(operand) if gradient is None else gradient
        for operand, gradient in zip((query, key, weights), gradients, strict=True)
    )
    return of_query, of_key, of_weights


def index_scores(queries: Tensor, weights: Tensor, keys: Tensor) -> Tensor:
    """Return the scores of keys (S2, N2, D) for queries (S1, N1, D) with ``weights`` (S1, N1), (S1, N2, S2)."""
    groups = queries.shape[1] // keys.shape[1]

    def rows_of(rows: slice) -> tuple[Tensor]:
        grouped, factors = (torch.unflatten(operand[rows], 1, (-1, groups)) for operand in (queries, weights))
        products = torch.relu(torch.einsum("rngd,snd->rngs", grouped, keys))
        return (torch.einsum("rng,rngs->rns", factors, products),)

    return by_rows(rows_of, len(queries), queries.shape[1] * len(keys))[0]


@dataclass(frozen=True, slots=True)
class _Where:
    """Arguments that say where the tokens of queries and keys are, and which keys a query sees."""

    actual_seq_lengths_query: Lengths = None
    actual_seq_lengths_key: Lengths = None
    block_table: Tensor | None = None
    layout_query: str = "BSND"
    layout_key: str = "BSND"
    sparse_mode: int = 3
    pre_tokens: int = UNLIMITED
    next_tokens: int = UNLIMITED


def _given(options: dict[str, Any]) -> _Where:
    return _Where(**{option.name: options[option.name] for option in fields(_Where) if option.name in options})


def _quantized_scores(
    query: Tensor,
    key: Tensor,
    weights: Tensor,
    query_dequant_scale: Tensor,
    key_dequant_scale: Tensor,
    query_quant_mode: int,
    key_quant_mode: int,
    where: _Where,
) -> Tensor:
    api = "npu_quant_lightning_indexer"
    refuse(api, query_quant_mode=query_quant_mode or None, key_quant_mode=key_quant_mode or None)
    # float16 holds neither the products of bytes nor their sums
    scaled = at_least_float32(weights) * at_least_float32(query_dequant_scale)
    keys = key.to(scaled.dtype) * at_least_float32(key_dequant_scale).unsqueeze(-1)
    return _scores(api, query.to(scaled.dtype), scaled, keys, where)


def _scores(api: str, query: Tensor, weights: Tensor, key: Tensor, where: _Where) -> Tensor:
    """Return the scores of all sequences in the layout of ``query``, -inf for what is not seen or not there."""
    layout = where.layout_query
    scores = []
    for queries, factors, keys in zip(
        sequences(api, query, layout, where.actual_seq_lengths_query),
        sequences(api, weights, layout, where.actual_seq_lengths_query),
        sequences(api, key, where.layout_key, where.actual_seq_lengths_key, where.block_table),
        strict=True,
    ):
        window = {"pre_tokens": where.pre_tokens, "next_tokens": where.next_tokens}
        counts = visible_counts(api, where.sparse_mode, len(queries), len(keys), **window)
        hidden = ~visible_keys(counts, len(keys)).unsqueeze(1)
        scores.append(index_scores(queries, factors, keys).masked_fill(hidden, -torch.inf))
    return aligned(scores, row_count(query, layout), layout)
