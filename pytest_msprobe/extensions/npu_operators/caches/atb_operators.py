"""Operators of the library ATB for decoding: attention over pages, and what fills and reads them.

Caches are (blocks, tokens, N, D) or, on cards for inference, (blocks, N * D / 16, tokens, 16).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from pytest_msprobe.engine.replay.ops.operators import golden
from pytest_msprobe.engine.replay.ops.traits import OpInfo
from pytest_msprobe.extensions.npu_operators import caches
from pytest_msprobe.extensions.npu_operators.arguments import refuse
from pytest_msprobe.extensions.npu_operators.attention.inference_sequences import Keys
from pytest_msprobe.extensions.npu_operators.attention.sequence_attention import Queries, attention_of_sequences
from pytest_msprobe.extensions.npu_operators.caches.paged_caches import (
    npu_gather_pa_kv_cache,
    write_in_chunks,
    write_tokens,
)
from pytest_msprobe.extensions.npu_operators.inputs import moe_routing as routing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor


@golden("NPU._npu_reshape_and_cache", OpInfo(constraint=caches.filled, in_place=True))
def _npu_reshape_and_cache(
    key: Tensor, value: Tensor, key_cache: Tensor, value_cache: Tensor, slot_indices: Tensor
) -> None:
    """Write keys and values (T, N, D) in place to the slots of their caches that ``slot_indices`` (T) names."""
    for tokens, cache in ((key, key_cache), (value, value_cache)):
        write = write_tokens if cache.shape[2:] == tokens.shape[1:] else write_in_chunks
        write(cache, slot_indices, tokens)


@golden("NPU._npu_paged_attention", OpInfo(constraint=caches.attended_pages(6), in_place=True))
def _npu_paged_attention(
    query: Tensor, key_cache: Tensor, value_cache: Tensor, num_kv_heads: int, num_heads: int,
    scale_value: float, block_table: Tensor, context_lens: Tensor, out: Tensor, workspace: Tensor | None = None,
) -> None:  # fmt: skip
    """Write to ``out`` (T, N, D), in place, the attention of each token to the first keys of its row of the table.

    ``context_lens`` says to how many. Raises NotImplementedError for queries or caches in whole numbers.
    """
    lengths = [int(length) for length in context_lens]
    caches = key_cache, value_cache
    _attend("_npu_paged_attention", query, caches, (num_heads, num_kv_heads), scale_value, block_table, lengths, out)


@golden("NPU.atb._npu_paged_attention_v2", OpInfo(constraint=caches.attended_pages(2), in_place=True))
def _npu_paged_attention_v2(
    query: Tensor, key_cache: Tensor, block_table: Tensor, context_lens: Sequence[int],
    *, value_cache: Tensor | None = None, mask: Tensor | None = None, num_kv_heads: int = 0, num_heads: int = 0,
    scale_value: float = 1.0, mask_type: int = 0, out: Tensor,
) -> Tensor:  # fmt: skip
    """Return ``out``, written as :func:`_npu_paged_attention` does.

    Raises NotImplementedError as that one, for masks, and for values that are part of the keys.
    """
    api = "atb._npu_paged_attention_v2"
    refuse(api, mask=mask, mask_type=mask_type or None)
    if value_cache is None:
        raise NotImplementedError(f"{api} has no golden definition without value_cache")
    heads = num_heads, num_kv_heads or num_heads
    _attend(api, query, (key_cache, value_cache), heads, scale_value, block_table, context_lens, out)
    return out


def _attend(
    api: str,
    query: Tensor,
    caches: tuple[Tensor, Tensor],
    heads: tuple[int, int],
    scale: float,
    block_table: Tensor,
    lengths: Sequence[int],
    out: Tensor,
) -> None:
    count = len(lengths)
    # as CANN's operators store them: heads before tokens
    key, value = (
        cache.transpose(1, 2) if cache.shape[2] == heads[1] else torch.unflatten(cache, 1, (heads[1], -1))
        for cache in caches
    )
    attention, _ = attention_of_sequences(
        api,
        Queries(query[:count].unsqueeze(2), "BNSD", heads[0], scale, None),
        Keys(key, value, heads[1], lengths, "context_lens", block_table=block_table[:count]),
    )
    out[:count] = attention.squeeze(2).view(out[:count].shape)


@golden("NPU.atb.npu_paged_cache_load", OpInfo(constraint=caches.loaded, in_place=True))
def npu_paged_cache_load(
    key_cache: Tensor,
    value_cache: Tensor,
    block_table: Tensor,
    context_lens: Tensor,
    *,
    seq_starts: Tensor | None = None,
    cumsum: bool = False,
    key: Tensor | None = None,
    value: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the keys and values of all sequences, as npu_gather_pa_kv_cache finds them; those given are written."""
    ends = context_lens
    if cumsum and len(ends) == len(block_table):
        ends = torch.cat((ends.new_zeros(1), ends))
    count = int(ends[-1] - ends[0]) if cumsum else int(ends.sum())
    results = tuple(
        cache.new_zeros(count, *cache.shape[2:]) if destination is None else destination
        for cache, destination in ((key_cache, key), (value_cache, value))
    )
    npu_gather_pa_kv_cache(
        key_cache, value_cache, block_table, ends, *results, seq_offset=seq_starts, is_seq_lens_cumsum=cumsum
    )
    return results[0], results[1]


@golden(
    "NPU._npu_rotary_embedding", OpInfo(constraint=routing.rows_of(4, "cos_sin_cache", 0, "positions"), in_place=True)
)
def _npu_rotary_embedding(
    positions: Tensor, query: Tensor, key: Tensor, head_size: int, cos_sin_cache: Tensor, is_neox_style: bool
) -> None:
    """Turn ``query`` and ``key`` (T, N * D), in place, by the angles of their tokens' positions.

    ``cos_sin_cache`` (positions, D) holds D / 2 cosines, then as many sines. ``is_neox_style`` pairs the element i with
    i + D / 2, otherwise 2 i with 2 i + 1. Raises NotImplementedError where only a part of each head would turn.
    """
    width = cos_sin_cache.shape[-1]
    refuse("_npu_rotary_embedding", head_size=None if head_size == width else head_size)
    cos, sin = cos_sin_cache[positions.reshape(-1).long()].unsqueeze(1).chunk(2, -1)
    for operand in (query, key):
        heads = operand.view(len(cos), -1, head_size)
        first, second = heads.chunk(2, -1) if is_neox_style else (heads[..., ::2], heads[..., 1::2])
        turned = first * cos - second * sin, second * cos + first * sin
        heads.copy_(torch.cat(turned, -1) if is_neox_style else torch.stack(turned, -1).flatten(-2))
