"""Attention of inference: prompts, increments, and both in one operator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_msprobe.engine.replay.ops.operators import golden
from pytest_msprobe.engine.replay.ops.traits import OpInfo
from pytest_msprobe.extensions.npu_operators import caches
from pytest_msprobe.extensions.npu_operators.arguments import refuse
from pytest_msprobe.extensions.npu_operators.attention.inference_sequences import Dequantization, Keys
from pytest_msprobe.extensions.npu_operators.attention.sequence_attention import (
    UNLIMITED,
    Queries,
    attention_of_sequences,
)
from pytest_msprobe.extensions.npu_operators.quantization.quantized_results import EIGHT_BITS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor


@golden("NPU.npu_prompt_flash_attention", OpInfo(constraint=caches.attended_blocks, quantizes=EIGHT_BITS))
def npu_prompt_flash_attention(
    query: Tensor, key: Tensor, value: Tensor,
    *, padding_mask: Tensor | None = None, atten_mask: Tensor | None = None, pse_shift: Tensor | None = None,
    actual_seq_lengths: Sequence[int] | None = None, deq_scale1: Tensor | None = None,
    quant_scale1: Tensor | None = None, deq_scale2: Tensor | None = None, quant_scale2: Tensor | None = None,
    quant_offset2: Tensor | None = None, num_heads: int = 1, scale_value: float = 1.0,
    pre_tokens: int = UNLIMITED, next_tokens: int = 0, input_layout: str = "BSH", num_key_value_heads: int = 0,
    actual_seq_lengths_kv: Sequence[int] | None = None, sparse_mode: int = 0,
) -> Tensor:  # fmt: skip
    """Return softmax(mask(scale_value * q k^T + pse_shift)) v in ``input_layout``.

    That is BSH, BSND, BNSD, BNSD_BSND (results in BSND), NSD, or TND, whose lengths are ends. ``atten_mask`` is true
    where a key is hidden, (Sq, Skv) or with dimensions for batch and heads before; without it everything is visible.
    ``sparse_mode`` 0 to 4 is that of ``npu_fusion_attention``, its lower right corner that of the actual lengths, of
    which there is one for all batch entries or one each. ``pse_shift`` (B or 1, N, Sq, Skv) is added to scaled scores,
    as CANN's kernel does. ``quant_scale2`` and ``quant_offset2`` make the result int8: round(result * scale + offset).

    Raises NotImplementedError for other layouts, for the reserved ``padding_mask``, and for ``deq_scale1``,
    ``quant_scale1`` and ``deq_scale2``, with which the kernel rounds the weights of each tile to 8 bits in an order
    that is not documented; ValueError for another mode.
    """
    api = "npu_prompt_flash_attention"
    refuse(api, padding_mask=padding_mask, deq_scale1=deq_scale1, quant_scale1=quant_scale1, deq_scale2=deq_scale2)
    queries = Queries(
        query,
        input_layout,
        num_heads,
        scale_value,
        atten_mask,
        lengths=actual_seq_lengths,
        sparse_mode=sparse_mode,
        pre_tokens=pre_tokens,
        next_tokens=next_tokens,
        pse_shift=pse_shift,
        quant_scale=quant_scale2,
        quant_offset=quant_offset2,
    )
    keys = Keys(key, value, num_key_value_heads or num_heads, actual_seq_lengths_kv, "actual_seq_lengths_kv")
    return attention_of_sequences(api, queries, keys)[0]


@golden("NPU.npu_incre_flash_attention", OpInfo(constraint=caches.attended_blocks, quantizes=EIGHT_BITS))
def npu_incre_flash_attention(
    query: Tensor, key: Tensor, value: Tensor,
    *, padding_mask: Tensor | None = None, atten_mask: Tensor | None = None, pse_shift: Tensor | None = None,
    actual_seq_lengths: Sequence[int] | None = None, antiquant_scale: Tensor | None = None,
    antiquant_offset: Tensor | None = None, block_table: Tensor | None = None,
    dequant_scale1: Tensor | None = None, quant_scale1: Tensor | None = None,
    dequant_scale2: Tensor | None = None, quant_scale2: Tensor | None = None,
    quant_offset2: Tensor | None = None, kv_padding_size: Tensor | None = None, num_heads: int = 1,
    scale_value: float = 1.0, input_layout: str = "BSH", num_key_value_heads: int = 0, block_size: int = 0,
    inner_precise: int = 1,
) -> Tensor:  # fmt: skip
    """Return softmax(mask(scale_value * q k^T + pse_shift)) v of one query per batch entry, in BSH, BSND or BNSD.

    ``actual_seq_lengths`` are those of key and value. ``atten_mask`` is true where a key is hidden, (B, ..., Skv). With
    ``block_table`` (B, n) key and value are caches in blocks of tokens, (blocks, tokens, H) or (blocks, N, tokens, D),
    and row b names the blocks of batch entry b in their order; ``block_size`` repeats their size. Where
    ``kv_padding_size`` says how many rows are behind the last key, keys are those before it, and so are the columns
    of mask and ``pse_shift``. ``antiquant_scale`` and ``antiquant_offset`` (2, ...), for key and for value, make int8
    keys numbers: (x + offset) * scale. ``quant_scale2`` and ``quant_offset2`` make the result int8.

    Raises NotImplementedError as :func:`npu_prompt_flash_attention`, and ValueError for blocks without lengths.
    """
    api = "npu_incre_flash_attention"
    refuse(
        api,
        padding_mask=padding_mask,
        dequant_scale1=dequant_scale1,
        quant_scale1=quant_scale1,
        dequant_scale2=dequant_scale2,
    )
    queries = Queries(
        query,
        input_layout,
        num_heads,
        scale_value,
        atten_mask,
        pse_shift=pse_shift,
        quant_scale=quant_scale2,
        quant_offset=quant_offset2,
    )
    for_key, for_value = paired_dequantizations(antiquant_scale, antiquant_offset, 0)
    keys = Keys(
        key,
        value,
        num_key_value_heads or num_heads,
        actual_seq_lengths,
        "actual_seq_lengths",
        block_table=block_table,
        rows_behind=rows_behind(kv_padding_size, actual_seq_lengths),
        key_dequantization=for_key,
        value_dequantization=for_value,
    )
    return attention_of_sequences(api, queries, keys)[0]


def paired_dequantizations(
    scale: Tensor | None, offset: Tensor | None, mode: int
) -> tuple[Dequantization | None, Dequantization | None]:
    """Return how keys and how values become numbers, from parameters (2, ...) that hold those of both."""
    if scale is None:
        return None, None
    offsets = (None, None) if offset is None else (offset[0], offset[1])
    return Dequantization(scale[0], offsets[0], mode), Dequantization(scale[1], offsets[1], mode)


def rows_behind(padding: Tensor | None, lengths: Sequence[int] | None) -> int | None:
    """Return how many rows are behind the last one of a sequence; None where they are not said or have no lengths."""
    return None if padding is None or not lengths else max(int(padding.reshape(-1)[0]), 0)


@golden("NPU.npu_fused_infer_attention_score", OpInfo(constraint=caches.attended_blocks, quantizes=EIGHT_BITS))
def npu_fused_infer_attention_score(
    query: Tensor, key: Tensor, value: Tensor,
    *, pse_shift: Tensor | None = None, atten_mask: Tensor | None = None,
    actual_seq_lengths: Sequence[int] | None = None, actual_seq_lengths_kv: Sequence[int] | None = None,
    dequant_scale1: Tensor | None = None, quant_scale1: Tensor | None = None,
    dequant_scale2: Tensor | None = None, quant_scale2: Tensor | None = None,
    quant_offset2: Tensor | None = None, antiquant_scale: Tensor | None = None,
    antiquant_offset: Tensor | None = None, key_antiquant_scale: Tensor | None = None,
    key_antiquant_offset: Tensor | None = None, value_antiquant_scale: Tensor | None = None,
    value_antiquant_offset: Tensor | None = None, block_table: Tensor | None = None,
    query_padding_size: Tensor | None = None, kv_padding_size: Tensor | None = None,
    key_shared_prefix: Tensor | None = None, value_shared_prefix: Tensor | None = None,
    actual_shared_prefix_len: Sequence[int] | None = None, query_rope: Tensor | None = None,
    key_rope: Tensor | None = None, key_rope_antiquant_scale: Tensor | None = None, num_heads: int = 1,
    scale: float = 1.0, pre_tokens: int = UNLIMITED, next_tokens: int = UNLIMITED, input_layout: str = "BSH",
    num_key_value_heads: int = 0, sparse_mode: int = 0, inner_precise: int = 0, block_size: int = 0,
    antiquant_mode: int = 0, key_antiquant_mode: int = 0, value_antiquant_mode: int = 0,
    softmax_lse_flag: bool = False,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    """Return (softmax(mask(scale * q k^T + pse_shift)) v, log(sum(exp(scores))) if ``softmax_lse_flag``, else None).

    Layouts, masks, modes, paddings and int8 results are those of ``npu_prompt_flash_attention`` and
    ``npu_incre_flash_attention``; ``input_layout`` A_B takes A and gives B. The second result is (B, N, Sq, 1), or
    (T, N, 1). For TND the lengths are ends, those of keys in blocks are lengths. ``query_rope`` and ``key_rope`` are
    further dimensions of queries and keys (not of values). The shared prefixes, of which the first
    ``actual_shared_prefix_len`` tokens count, are before the keys of every batch entry, and the mask's first columns
    are theirs. Of int8 keys and values the parameters for key and for value count before those for both; the modes are
    those of :class:`Dequantization`. ``block_size`` repeats a cache's size, ``inner_precise`` chooses a kernel.

    Raises NotImplementedError for ``dequant_scale1``, ``quant_scale1`` and ``dequant_scale2`` (see
    ``npu_prompt_flash_attention``), for the reserved ``key_rope_antiquant_scale``, and for sparse mode 9, whose mask
    has no documented columns; ValueError for another mode.
    """
    api = "npu_fused_infer_attention_score"
    refuse(
        api,
        dequant_scale1=dequant_scale1,
        quant_scale1=quant_scale1,
        dequant_scale2=dequant_scale2,
        key_rope_antiquant_scale=key_rope_antiquant_scale,
        **{"sparse_mode 9": sparse_mode if sparse_mode == 9 else None},
    )
    queries = Queries(
        query,
        input_layout,
        num_heads,
        scale,
        atten_mask,
        lengths=actual_seq_lengths,
        sparse_mode=sparse_mode,
        pre_tokens=pre_tokens,
        next_tokens=next_tokens,
        query_rope=query_rope,
        pse_shift=pse_shift,
        rows_behind=rows_behind(query_padding_size, actual_seq_lengths),
        quant_scale=quant_scale2,
        quant_offset=quant_offset2,
    )
    for_key, for_value = paired_dequantizations(antiquant_scale, antiquant_offset, antiquant_mode)
    if key_antiquant_scale is not None:
        for_key = Dequantization(key_antiquant_scale, key_antiquant_offset, key_antiquant_mode)
    if value_antiquant_scale is not None:
        for_value = Dequantization(value_antiquant_scale, value_antiquant_offset, value_antiquant_mode)
    keys = Keys(
        key,
        value,
        num_key_value_heads or num_heads,
        actual_seq_lengths_kv,
        "actual_seq_lengths_kv",
        key_rope=key_rope,
        block_table=block_table,
        key_prefix=key_shared_prefix,
        value_prefix=value_shared_prefix,
        prefix_length=int(actual_shared_prefix_len[0]) if actual_shared_prefix_len is not None else None,
        rows_behind=rows_behind(kv_padding_size, actual_seq_lengths_kv),
        key_dequantization=for_key,
        value_dequantization=for_value,
    )
    out, statistic = attention_of_sequences(api, queries, keys)
    return out, statistic if softmax_lse_flag else None


@golden("NPU.npu_fused_infer_attention_score_v2", OpInfo(constraint=caches.attended_blocks, quantizes=EIGHT_BITS))
def npu_fused_infer_attention_score_v2(
    query: Tensor, key: Tensor, value: Tensor,
    *, query_rope: Tensor | None = None, key_rope: Tensor | None = None, pse_shift: Tensor | None = None,
    atten_mask: Tensor | None = None, actual_seq_qlen: Sequence[int] | None = None,
    actual_seq_kvlen: Sequence[int] | None = None, block_table: Tensor | None = None,
    dequant_scale_query: Tensor | None = None, dequant_scale_key: Tensor | None = None,
    dequant_offset_key: Tensor | None = None, dequant_scale_value: Tensor | None = None,
    dequant_offset_value: Tensor | None = None, dequant_scale_key_rope: Tensor | None = None,
    quant_scale_out: Tensor | None = None, quant_offset_out: Tensor | None = None,
    quant_scale_p: Tensor | None = None, learnable_sink: Tensor | None = None, num_query_heads: int = 1,
    num_key_value_heads: int = 0, softmax_scale: float = 1.0, pre_tokens: int = UNLIMITED,
    next_tokens: int = UNLIMITED, input_layout: str = "BSH", sparse_mode: int = 0, block_size: int = 0,
    query_quant_mode: int = 0, key_quant_mode: int = 0, value_quant_mode: int = 0, inner_precise: int = 0,
    return_softmax_lse: bool = False, query_dtype: int | None = None, key_dtype: int | None = None,
    value_dtype: int | None = None, query_rope_dtype: int | None = None, key_rope_dtype: int | None = None,
    key_shared_prefix_dtype: int | None = None, value_shared_prefix_dtype: int | None = None,
    dequant_scale_query_dtype: int | None = None, dequant_scale_key_dtype: int | None = None,
    dequant_scale_value_dtype: int | None = None, dequant_scale_key_rope_dtype: int | None = None,
    out_dtype: int | None = None,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    """Return :func:`npu_fused_infer_attention_score` under other names, with ``learnable_sink``, without prefixes.

    ``learnable_sink`` (N) is for each head the score of one more key, whose value is 0; it counts in the second result.

    Raises NotImplementedError as that does, for ``dequant_scale_query`` and ``quant_scale_p``, with which weights are
    rounded to 8 bits inside, and for dtypes, of which each says that the bytes of an argument mean something else.
    """
    api = "npu_fused_infer_attention_score_v2"
    refuse(
        api,
        dequant_scale_query=dequant_scale_query,
        dequant_scale_key_rope=dequant_scale_key_rope,
        quant_scale_p=quant_scale_p,
        query_quant_mode=query_quant_mode or None,
        query_dtype=query_dtype,
        key_dtype=key_dtype,
        value_dtype=value_dtype,
        query_rope_dtype=query_rope_dtype,
        key_rope_dtype=key_rope_dtype,
        key_shared_prefix_dtype=key_shared_prefix_dtype,
        value_shared_prefix_dtype=value_shared_prefix_dtype,
        dequant_scale_query_dtype=dequant_scale_query_dtype,
        dequant_scale_key_dtype=dequant_scale_key_dtype,
        dequant_scale_value_dtype=dequant_scale_value_dtype,
        dequant_scale_key_rope_dtype=dequant_scale_key_rope_dtype,
        out_dtype=out_dtype,
        **{"sparse_mode 9": sparse_mode if sparse_mode == 9 else None},
    )
    queries = Queries(
        query,
        input_layout,
        num_query_heads,
        softmax_scale,
        atten_mask,
        lengths=actual_seq_qlen,
        lengths_name="actual_seq_qlen",
        sparse_mode=sparse_mode,
        pre_tokens=pre_tokens,
        next_tokens=next_tokens,
        query_rope=query_rope,
        pse_shift=pse_shift,
        sink=learnable_sink,
        quant_scale=quant_scale_out,
        quant_offset=quant_offset_out,
    )
    for_key = _dequantization(dequant_scale_key, dequant_offset_key, key_quant_mode)
    for_value = _dequantization(dequant_scale_value, dequant_offset_value, value_quant_mode)
    keys = Keys(
        key,
        value,
        num_key_value_heads or num_query_heads,
        actual_seq_kvlen,
        "actual_seq_kvlen",
        key_rope=key_rope,
        block_table=block_table,
        key_dequantization=for_key,
        value_dequantization=for_value,
    )
    out, statistic = attention_of_sequences(api, queries, keys)
    return out, statistic if return_softmax_lse else None


def _dequantization(scale: Tensor | None, offset: Tensor | None, mode: int) -> Dequantization | None:
    return None if scale is None else Dequantization(scale, offset, mode)
