"""Fused attention of inference: of a whole prompt, of one token after the other, and of either."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from pytest_msprobe.engine.replay.references.attention.attention_core import (
    BATCHED_LAYOUTS,
    attend,
    heads_first,
    in_layout,
)
from pytest_msprobe.engine.replay.references.attention.attention_mask import AttentionMask
from pytest_msprobe.engine.replay.references.reference_arguments import refuse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

# CANN's default, the greatest int32: every earlier or later token is attended to.
_UNLIMITED = 2147483647
# input layout -> that of query, key and value, and that of the result
_LAYOUTS = {"BSH": ("BSH", "BSH"), "BSND": ("BSND", "BSND"), "BNSD": ("BNSD", "BNSD"), "BNSD_BSND": ("BNSD", "BSND")}


def npu_prompt_flash_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    atten_mask: Tensor | None = None,
    actual_seq_lengths: Sequence[int] | None = None,
    num_heads: int = 1,
    scale_value: float = 1.0,
    pre_tokens: int = _UNLIMITED,
    next_tokens: int = 0,
    input_layout: str = "BSH",
    num_key_value_heads: int = 0,
    actual_seq_lengths_kv: Sequence[int] | None = None,
    sparse_mode: int = 0,
    **unsupported: Any,
) -> Tensor:
    """Return softmax(mask(scale_value * q k^T)) v in ``input_layout`` BSH, BSND, BNSD, or BNSD_BSND: results in BSND.

    ``atten_mask`` is true where a key is hidden, (Sq, Skv) or with dimensions for batch and heads before; without it
    everything is visible. ``sparse_mode`` 0 to 4 is that of ``npu_fusion_attention``, its lower right corner that of
    the actual lengths, of which there is one for all batch entries or one each.

    Raises NotImplementedError for queries shorter than Sq, behind which nothing is promised, other layouts, and
    ``pse_shift``, ``padding_mask`` and what quantizes; ValueError for another mode.
    """
    given = _Given(
        query,
        key,
        value,
        input_layout=input_layout,
        heads=num_heads,
        heads_kv=num_key_value_heads or num_heads,
        scale=scale_value,
        mask=atten_mask,
        sparse_mode=sparse_mode,
        pre_tokens=pre_tokens,
        next_tokens=next_tokens,
        lengths=actual_seq_lengths,
        lengths_kv=actual_seq_lengths_kv,
    )
    return _attention("npu_prompt_flash_attention", given, unsupported)


def npu_incre_flash_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    atten_mask: Tensor | None = None,
    actual_seq_lengths: Sequence[int] | None = None,
    num_heads: int = 1,
    scale_value: float = 1.0,
    input_layout: str = "BSH",
    num_key_value_heads: int = 0,
    block_table: Tensor | None = None,
    block_size: int = 0,
    inner_precise: int = 1,
    **unsupported: Any,
) -> Tensor:
    """Return softmax(mask(scale_value * q k^T)) v of one query per batch entry, in ``input_layout`` BSH, BSND or BNSD.

    ``actual_seq_lengths`` are those of key and value. ``atten_mask`` is true where a key is hidden, (B, ..., Skv). With
    ``block_table`` (B, n) key and value are caches in blocks of tokens, (blocks, tokens, H) or (blocks, N, tokens, D),
    and row b names the blocks of batch entry b in their order. Raises NotImplementedError as
    :func:`npu_prompt_flash_attention`, and ValueError for blocks without ``actual_seq_lengths``.
    """
    if block_table is not None:
        if not actual_seq_lengths:
            raise ValueError("block_table of npu_incre_flash_attention needs actual_seq_lengths")
        heads = num_key_value_heads or num_heads
        key, value = (_from_blocks(cache, block_table, heads, input_layout) for cache in (key, value))
    mask = None if atten_mask is None else atten_mask.reshape(-1, 1, 1, atten_mask.shape[-1])
    given = _Given(
        query,
        key,
        value,
        input_layout=input_layout,
        heads=num_heads,
        heads_kv=num_key_value_heads or num_heads,
        scale=scale_value,
        mask=mask,
        lengths_kv=actual_seq_lengths,
    )
    return _attention("npu_incre_flash_attention", given, unsupported)


def npu_fused_infer_attention_score(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    atten_mask: Tensor | None = None,
    actual_seq_lengths: Sequence[int] | None = None,
    actual_seq_lengths_kv: Sequence[int] | None = None,
    num_heads: int = 1,
    scale: float = 1.0,
    pre_tokens: int = _UNLIMITED,
    next_tokens: int = _UNLIMITED,
    input_layout: str = "BSH",
    num_key_value_heads: int = 0,
    sparse_mode: int = 0,
    inner_precise: int = 0,
    block_size: int = 0,
    antiquant_mode: int = 0,
    key_antiquant_mode: int = 0,
    value_antiquant_mode: int = 0,
    softmax_lse_flag: bool = False,
    **unsupported: Any,
) -> tuple[Tensor, None]:
    """Return (:func:`npu_prompt_flash_attention` of the arguments, None: nothing is promised of the second result).

    Raises NotImplementedError as that does, and for ``block_table``, ``query_rope``, shared prefixes, paddings on the
    left and ``softmax_lse_flag``.
    """
    unsupported["softmax_lse_flag"] = softmax_lse_flag or None
    given = _Given(
        query,
        key,
        value,
        input_layout=input_layout,
        heads=num_heads,
        heads_kv=num_key_value_heads or num_heads,
        scale=scale,
        mask=atten_mask,
        sparse_mode=sparse_mode,
        pre_tokens=pre_tokens,
        next_tokens=next_tokens,
        lengths=actual_seq_lengths,
        lengths_kv=actual_seq_lengths_kv,
    )
    return _attention("npu_fused_infer_attention_score", given, unsupported), None


@dataclass(frozen=True, slots=True)
class _Given:
    """The arguments that the operators share, whatever each of them calls them.

    ``lengths`` and ``lengths_kv`` are those of queries and of keys, one for all batch entries or one each; empty or
    None where every entry is as long as the tensor. The sparse mode of an operator without one reads the whole mask.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    input_layout: str
    heads: int
    heads_kv: int
    scale: float
    mask: Tensor | None
    sparse_mode: int = 1
    pre_tokens: int = _UNLIMITED
    next_tokens: int = _UNLIMITED
    lengths: Sequence[int] | None = None
    lengths_kv: Sequence[int] | None = None


def _attention(api: str, given: _Given, unsupported: dict[str, Any]) -> Tensor:
    refuse(api, **unsupported, input_layout=None if given.input_layout in _LAYOUTS else given.input_layout)
    layout, layout_of_result = _LAYOUTS[given.input_layout]
    q = heads_first(given.query, layout, given.heads)
    k, v = (heads_first(each, layout, given.heads_kv) for each in (given.key, given.value))
    batch, rows = q.shape[0], q.shape[2]
    shorter = [length for length in given.lengths or () if length < rows]
    refuse(api, **{f"actual_seq_lengths below {rows}": shorter or None})
    outs = []
    for entry, columns in enumerate(_each_length(given.lengths_kv, batch, k.shape[2])):
        mask = AttentionMask(
            _of_entry(given.mask, entry), given.sparse_mode, given.pre_tokens, given.next_tokens, None, False, api
        )
        hidden = mask.of_batch(1, rows, columns)
        one = slice(entry, entry + 1)
        outs.append(attend(q[one], k[one, :, :columns], v[one, :, :columns], None, hidden, given.scale, 1.0)[0])
    return in_layout(torch.cat(outs), layout_of_result)


def _from_blocks(cache: Tensor, block_table: Tensor, heads: int, layout: str) -> Tensor:
    """Return what a cache holds of every batch entry, in ``layout``; behind an entry's length it means nothing."""
    if layout not in BATCHED_LAYOUTS:
        return cache
    blocks = cache if cache.dim() == 4 else heads_first(cache, "BSH", heads)
    # (B, n, N, tokens, D)
    of_entries = blocks[block_table.long().clamp(0, len(blocks) - 1)]
    return in_layout(of_entries.transpose(1, 2).flatten(2, 3), layout)


def _each_length(lengths: Sequence[int] | None, batch: int, longest: int) -> list[int]:
    """Return the length of each batch entry; one length is that of all."""
    if not lengths:
        return [longest] * batch
    return [int(length) for length in lengths][:batch] if len(lengths) > 1 else [int(lengths[0])] * batch


def _of_entry(mask: Tensor | None, entry: int) -> Tensor | None:
    """Return what a mask (..., Sq, Skv) hides in one batch entry, with dimensions for it and for heads where it has."""
    if mask is None or mask.dim() == 2:
        return mask
    batched = mask.unsqueeze(1) if mask.dim() == 3 else mask
    return batched[entry : entry + 1] if batched.shape[0] > 1 else batched
