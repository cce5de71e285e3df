"""Attention of inference: of a whole prompt, and of one token after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_msprobe.extensions.npu_operators.attention.inference_keys import Dequantization, Keys
from pytest_msprobe.extensions.npu_operators.attention.sequence_attention import (
    UNLIMITED,
    Queries,
    attention_of_sequences,
)
from pytest_msprobe.extensions.npu_operators.reference_arguments import refuse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor


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
