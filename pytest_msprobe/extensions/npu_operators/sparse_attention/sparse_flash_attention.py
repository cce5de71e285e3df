"""Attention to the keys that a lightning indexer has selected (DeepSeek-V3.2, 2025), forward and gradient."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from pytest_msprobe.engine.replay.ops.operators import golden
from pytest_msprobe.engine.replay.ops.traits import OpInfo
from pytest_msprobe.extensions.npu_operators.arguments import at_least_float32, refuse
from pytest_msprobe.extensions.npu_operators.inputs import selected_keys
from pytest_msprobe.extensions.npu_operators.sparse_attention.token_layouts import (
    UNLIMITED,
    Lengths,
    attend_selected,
    gradients_of_selected,
    joined,
    row_count,
    sequences,
    times_selected,
    visible_counts,
    visible_keys,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

# In attention_mode 2 queries and keys have rope dimensions of their own, and values are the keys without them.
_MODES = (0, 2)
_PER_TILE, _COMBINED = 2, 1


@golden("NPU.npu_sparse_flash_attention", OpInfo(constraint=selected_keys.sparse_attention))
def npu_sparse_flash_attention(
    query: Tensor, key: Tensor, value: Tensor | None, sparse_indices: Tensor, scale_value: float,
    *, block_table: Tensor | None = None, actual_seq_lengths_query: Lengths = None,
    actual_seq_lengths_kv: Lengths = None, query_rope: Tensor | None = None, key_rope: Tensor | None = None,
    sparse_block_size: int = 1, layout_query: str = "BSND", layout_kv: str = "BSND", sparse_mode: int = 3,
    pre_tokens: int = UNLIMITED, next_tokens: int = UNLIMITED, attention_mode: int = 0,
    return_softmax_lse: bool = False, sinks: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Return softmax(scale * q k^T) v over selected keys, in the form of ``query``, and each row's maximum and sum.

    ``query`` is (B, S1, N1, D) or, for TND, (T1, N1, D); ``key`` and ``value`` (B, S2, N2, D), (T2, N2, D) or pages of
    a cache, (pages, page size, N2, D); without ``value`` keys are values. Ropes are further dimensions of both.
    ``sparse_indices`` (..., N2, count) select for each query blocks of ``sparse_block_size`` keys; -1 ends them. In
    ``sparse_mode`` 3 a query sees of them the keys up to the diagonal that ends at the bottom right, in mode 0 all.
    Lengths are those of sequences, for TND their ends. ``sinks`` (N1) are the scores of one more key whose value is 0.

    Maximum and sum of exp(score - maximum) are (B, N2, S1, N1 / N2) or (N2, T1, N1 / N2), and empty without
    ``return_softmax_lse``. A query without keys gives 0, and 0 for both statistics (assumed, as in CANN's tests).

    Raises NotImplementedError for other modes and layouts.
    """
    api = "npu_sparse_flash_attention"
    refuse(api, attention_mode=None if attention_mode in _MODES else attention_mode)
    queries = _with_rope(query, query_rope)
    keys = _with_rope(key, key_rope)
    of_keys = [
        sequences(api, operand, layout_kv, actual_seq_lengths_kv, block_table)
        for operand in (keys, key if value is None else value)
    ]
    of_queries = [
        sequences(api, operand, layout_query, actual_seq_lengths_query) for operand in (queries, sparse_indices)
    ]
    results = []
    for q, selection, k, v in zip(*of_queries, *of_keys, strict=True):
        counts = visible_counts(api, sparse_mode, len(q), len(k), pre_tokens=pre_tokens, next_tokens=next_tokens)
        selected = _selection(selection, sparse_block_size, counts, len(k))
        out, maximum, total = attend_selected(q, k, v, selected, scale_value, sinks)
        results.append((out, maximum.masked_fill(maximum == -torch.inf, 0.0), total))
    rows = row_count(query, layout_query)
    out, maximum, total = (joined(part, rows, layout_query) for part in zip(*results, strict=True))
    if not return_softmax_lse:
        nothing = at_least_float32(query.new_empty(0))
        return out, nothing, nothing.clone()
    shared = keys.shape[-2]
    return out, _by_key_head(maximum, shared), _by_key_head(total, shared)


@golden("Aten.npu_sparse_flash_attention_grad", OpInfo(constraint=selected_keys.sparse_attention_gradient))
def npu_sparse_flash_attention_grad(
    query: Tensor, key: Tensor, value: Tensor | None, sparse_indices: Tensor, d_out: Tensor, out: Tensor,
    softmax_max: Tensor, softmax_sum: Tensor, scale_value: float, sparse_block_size: int,
    query_rope: Tensor | None = None, key_rope: Tensor | None = None, actual_seq_qlen: Lengths = None,
    actual_seq_kvlen: Lengths = None, layout: str | None = "BSND", sparse_mode: int | None = 3,
    pre_tokens: int | None = UNLIMITED, next_tokens: int | None = UNLIMITED, attention_mode: int | None = 0,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Return the gradients of :func:`npu_sparse_flash_attention` for query, key, value and both ropes.

    Weights are exp(score - ``softmax_max``) / ``softmax_sum``, as the forward saved them. Keys and values have
    gradients of their own though they be one tensor; without ``value``, whose gradient is then empty, the key has both
    (assumed). Gradients of ropes that were not given are empty.
    """
    api, layout = "npu_sparse_flash_attention_grad", layout or "BSND"
    refuse(api, attention_mode=None if attention_mode in (None, *_MODES) else attention_mode)
    queries, keys = _with_rope(query, query_rope), _with_rope(key, key_rope)
    statistics = [_by_query(operand, layout) for operand in (softmax_max, softmax_sum)]
    of_queries = [
        sequences(api, operand, layout, actual_seq_qlen)
        for operand in (queries, sparse_indices, d_out, out, *statistics)
    ]
    of_keys = [sequences(api, operand, layout, actual_seq_kvlen) for operand in (keys, key if value is None else value)]
    results = []
    for q, selection, arriving, there, maximum, total, k, v in zip(*of_queries, *of_keys, strict=True):
        counts = visible_counts(api, sparse_mode, len(q), len(k), pre_tokens=pre_tokens, next_tokens=next_tokens)
        selected = _selection(selection, sparse_block_size, counts, len(k))
        results.append(gradients_of_selected(q, k, v, selected, scale_value, (there, maximum, total), arriving))
    of_q, of_k, of_v = (
        joined(part, row_count(input_tensor, layout), layout)
        for part, input_tensor in zip(
            zip(*results, strict=True), (query, key, key if value is None else value), strict=True
        )
    )
    own_q, own_k = query.shape[-1], key.shape[-1]
    of_key = of_k[..., :own_k] + of_v if value is None else of_k[..., :own_k]
    of_value = query.new_empty(0) if value is None else of_v
    return of_q[..., :own_q], of_key, of_value, _of_rope(of_q, own_q, query_rope), _of_rope(of_k, own_k, key_rope)


@golden("NPU.npu_kv_quant_sparse_flash_attention", OpInfo(constraint=selected_keys.quantized_attention))
def npu_kv_quant_sparse_flash_attention(
    query: Tensor, key: Tensor, value: Tensor, sparse_indices: Tensor, scale_value: float, key_quant_mode: int,
    value_quant_mode: int,
    *, key_dequant_scale: Tensor | None = None, value_dequant_scale: Tensor | None = None,
    block_table: Tensor | None = None, actual_seq_lengths_query: Lengths = None,
    actual_seq_lengths_kv: Lengths = None, sparse_block_size: int = 1, layout_query: str = "BSND",
    layout_kv: str = "BSND", sparse_mode: int = 3, pre_tokens: int = UNLIMITED, next_tokens: int = UNLIMITED,
    attention_mode: int = 0, quant_scale_repo_mode: int = 1, tile_size: int = 128, rope_head_dim: int = 64,
    key_dtype: int | None = None, value_dtype: int | None = None,
) -> Tensor:  # fmt: skip
    """Return :func:`npu_sparse_flash_attention`'s output of quantized keys, which are the values too.

    A token of ``key`` (int8) holds one after the other the D numbers without rope, its rope in the bytes of the query's
    dtype, and in those of float32 a scale for each ``tile_size`` of the D numbers. ``query`` is (..., N1, D + rope);
    the output has D. ``value`` is the same cache and is not read: op-plugin's own test takes the values from ``key``.
    The bytes of ropes are bfloat16's where all numbers of ``query`` are, otherwise float16's.

    Raises NotImplementedError for what op-plugin documents as unsupported: other quantization modes than 2 (by tile),
    another ``quant_scale_repo_mode`` than 1, scales as tensors, and dtypes that bytes stand for.
    """
    api = "npu_kv_quant_sparse_flash_attention"
    refuse(
        api,
        key_quant_mode=None if key_quant_mode == _PER_TILE else key_quant_mode,
        value_quant_mode=None if value_quant_mode == _PER_TILE else value_quant_mode,
        key_dequant_scale=key_dequant_scale,
        value_dequant_scale=value_dequant_scale,
        quant_scale_repo_mode=None if quant_scale_repo_mode == _COMBINED else quant_scale_repo_mode,
        key_dtype=key_dtype,
        value_dtype=value_dtype,
        key=None if key.dtype == torch.int8 else key.dtype,
    )
    own = query.shape[-1] - rope_head_dim
    numbers, rope, scales = torch.split(key, [own, 2 * rope_head_dim, key.shape[-1] - own - 2 * rope_head_dim], -1)
    wide = torch.promote_types(query.dtype, torch.float32)
    scale = scales.contiguous().view(torch.float32).to(wide).repeat_interleave(tile_size, -1)[..., :own]
    plain = (numbers.to(wide) * scale).to(query.dtype)
    return npu_sparse_flash_attention(
        query[..., :own],
        plain,
        plain,
        sparse_indices,
        scale_value,
        block_table=block_table,
        actual_seq_lengths_query=actual_seq_lengths_query,
        actual_seq_lengths_kv=actual_seq_lengths_kv,
        query_rope=query[..., own:],
        key_rope=rope.contiguous().view(_narrow_dtype(query)).to(query.dtype),
        sparse_block_size=sparse_block_size,
        layout_query=layout_query,
        layout_kv=layout_kv,
        sparse_mode=sparse_mode,
        pre_tokens=pre_tokens,
        next_tokens=next_tokens,
        attention_mode=attention_mode,
    )[0]


def _narrow_dtype(x: Tensor) -> torch.dtype:
    """Return which dtype of 16 bits holds all numbers of a tensor, bfloat16 where both do."""
    if x.dtype in (torch.float16, torch.bfloat16):
        return x.dtype
    return torch.bfloat16 if torch.equal(x.to(torch.bfloat16).to(x.dtype), x) else torch.float16


def _with_rope(tensor: Tensor, rope: Tensor | None) -> Tensor:
    return tensor if rope is None else torch.cat([tensor, rope], -1)


def _of_rope(gradient: Tensor, own: int, rope: Tensor | None) -> Tensor:
    return gradient.new_empty(0) if rope is None else gradient[..., own:]


def _selection(selection: Tensor, size: int, counts: Tensor, columns: int) -> Callable[[slice], Tensor]:
    """Return what gives for some queries how often they see each key, (rows, N2, S2)."""

    def selected(rows: slice) -> Tensor:
        shown = visible_keys(counts[rows], columns).unsqueeze(1)
        return times_selected(selection[rows], size, columns) * shown

    return selected


def _by_key_head(statistic: Tensor, heads: int) -> Tensor:
    """Return (B, N2, S1, G) or (N2, T1, G) of a statistic (B, S1, N1) or (T1, N1), of ``heads`` keys."""
    return torch.unflatten(statistic, -1, (heads, -1)).movedim(-2, -3).contiguous()


def _by_query(statistic: Tensor, layout: str) -> Tensor:
    """Return (B, S1, N1) or (T1, N1) of a statistic (B, N2, S1, G) or (N2, T1, G)."""
    return statistic.movedim(0 if layout == "TND" else 1, -2).flatten(-2)
