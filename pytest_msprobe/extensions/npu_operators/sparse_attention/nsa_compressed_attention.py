"""Native sparse attention (Yuan et al., 2025): to compressed keys, by which the blocks to select are ranked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from pytest_msprobe.engine.replay.ops.operators import golden
from pytest_msprobe.engine.replay.ops.selected_positions import RankedPositions
from pytest_msprobe.engine.replay.ops.traits import OpInfo
from pytest_msprobe.extensions.npu_operators.arguments import refuse
from pytest_msprobe.extensions.npu_operators.inputs import selected_keys
from pytest_msprobe.extensions.npu_operators.sparse_attention.token_layouts import (
    Lengths,
    aligned,
    attend_selected,
    highest,
    joined,
    numbers,
    sequences,
    split_packed,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor


@golden("NPU.npu_nsa_compress")
def npu_nsa_compress(
    input: Tensor,
    weight: Tensor,
    compress_block_size: int,
    compress_stride: int,
    *,
    actual_seq_len: Sequence[int] | None = None,
) -> Tensor:
    """Return of each block of tokens the sum weighted with ``weight`` (block size, N), (blocks, N, D).

    ``input`` is (T, N, D), ``actual_seq_len`` where each sequence ends. A block starts every ``compress_stride`` tokens
    of a sequence; one that would reach beyond its end is left out. Raises ValueError without the ends.
    """
    sums, start = [input.new_zeros(0, *input.shape[1:])], 0
    for length in split_packed("npu_nsa_compress", actual_seq_len):
        tokens = input[start : start + length]
        start += length
        if length >= compress_block_size:
            # (blocks, N, D, block size)
            blocks = tokens.unfold(0, compress_block_size, compress_stride)
            sums.append(torch.einsum("cndi,in->cnd", blocks, weight))
    return torch.cat(sums)


@golden("Aten.npu_nsa_compress_grad")
def npu_nsa_compress_grad(
    grad: Tensor,
    input: Tensor,
    weight: Tensor,
    compress_block_size: int,
    compress_stride: int,
    *,
    actual_seq_len: Sequence[int] | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the gradients of :func:`npu_nsa_compress` for input and weight."""
    with torch.enable_grad():
        tokens, factors = (operand.detach().requires_grad_() for operand in (input, weight))
        out = npu_nsa_compress(tokens, factors, compress_block_size, compress_stride, actual_seq_len=actual_seq_len)
        of_input, of_weight = torch.autograd.grad(out, (tokens, factors), grad, allow_unused=True)
    return (
        torch.zeros_like(input) if of_input is None else of_input,
        torch.zeros_like(weight) if of_weight is None else of_weight,
    )


@golden("NPU.npu_nsa_compress_infer", OpInfo(constraint=selected_keys.compressed_slots, in_place=True))
def npu_nsa_compress_infer(
    input: Tensor, weight: Tensor, slot_mapping: Tensor, compress_block_size: int, compress_stride: int,
    page_block_size: int,
    *, block_table: Tensor | None = None, actual_seq_len: Sequence[int] | None = None, cache: Tensor,
) -> Tensor:  # fmt: skip
    """Write to ``cache`` (slots, N, D) the last compressed block of each sequence that has just become complete.

    ``input`` holds pages (pages, page size, N, D), of which a row of ``block_table`` says which are a sequence's;
    ``actual_seq_len`` are lengths. A block is complete where a length is the block size or a multiple of the stride
    more; its weighted sum of the last block size tokens goes to the sequence's slot. Returns ``cache``. Raises
    ValueError without table or lengths. The meaning is that of op-plugin's own test.
    """
    if block_table is None or actual_seq_len is None:
        raise ValueError("npu_nsa_compress_infer needs block_table and actual_seq_len")
    for length, slot, pages in zip(numbers(actual_seq_len), slot_mapping.tolist(), block_table.long(), strict=True):
        if length < compress_block_size or (length - compress_block_size) % compress_stride:
            continue
        last = torch.arange(length - compress_block_size, length)
        tokens = input[pages[last // page_block_size], last % page_block_size]
        cache[slot] = torch.einsum("ind,in->nd", tokens, weight)
    return cache


# the device repeats each row's maximum and sum to fill a 32-byte block of float32
_STATISTIC_COPIES = 8


def nsa_compress_importance(
    query: Tensor, key: Tensor, value: Tensor, scale_value: float, head_num: int, compress_block_size: int,
    compress_stride: int, select_block_size: int, select_block_count: int,
    *, topk_mask: Tensor | None = None, atten_mask: Tensor | None = None,
    actual_seq_qlen: Sequence[int] | None = None, actual_cmp_seq_kvlen: Sequence[int] | None = None,
    actual_sel_seq_kvlen: Sequence[int] | None = None,
) -> Tensor:  # fmt: skip
    """Return the importance of blocks by which :func:`npu_nsa_compress_attention` selects, (T1, N2, blocks).

    It is inf where ``topk_mask`` is true, and -inf for blocks that a sequence does not have.
    """
    return _compressed(
        query,
        key,
        value,
        scale_value,
        (compress_block_size, compress_stride, select_block_size),
        topk_mask,
        atten_mask,
        (actual_seq_qlen, actual_cmp_seq_kvlen, actual_sel_seq_kvlen),
    )[3]


@golden(
    "NPU.npu_nsa_compress_attention",
    OpInfo(selection=RankedPositions(nsa_compress_importance, outputs=4, positions_at=1)),
)
def npu_nsa_compress_attention(
    query: Tensor, key: Tensor, value: Tensor, scale_value: float, head_num: int, compress_block_size: int,
    compress_stride: int, select_block_size: int, select_block_count: int,
    *, topk_mask: Tensor | None = None, atten_mask: Tensor | None = None,
    actual_seq_qlen: Sequence[int] | None = None, actual_cmp_seq_kvlen: Sequence[int] | None = None,
    actual_sel_seq_kvlen: Sequence[int] | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Return (attention to compressed keys, the blocks of keys that matter most, maximum and sum of each row's scores).

    ``query`` is (T1, N1, D), ``key`` (T2, N2, D), ``value`` (T2, N2, Dv); the lengths are the ends of sequences, of
    ``actual_sel_seq_kvlen`` counted in blocks. ``atten_mask`` (most queries, most keys) is true where a compressed key
    is hidden. Attention is (T1, N1, Dv); a query that sees no key gives 0 (assumed, as in npu_fusion_attention).

    The importance of block j is the sum over the heads that share a key of p[m * (j + 1) - a - b], a < m =
    select_block_size / compress_stride and b < compress_block_size / compress_stride, p being the attention's weights:
    the paper's equation 9 with j counted from 1, as op-plugin's own test has it. Blocks where ``topk_mask`` (most
    queries, most blocks) is true come first. The positions of the ``select_block_count`` most important are
    (T1, N2, count), int32, the earlier of equal ones first.

    Maximum and sum are (T1, N1, 8), eight times each, of each sequence one head after the other, as
    npu_fusion_attention_grad takes them. Raises ValueError without lengths.
    """
    out, maximum, total, importance = _compressed(
        query,
        key,
        value,
        scale_value,
        (compress_block_size, compress_stride, select_block_size),
        topk_mask,
        atten_mask,
        (actual_seq_qlen, actual_cmp_seq_kvlen, actual_sel_seq_kvlen),
    )
    return out, highest(importance, select_block_count)[0], _copies(maximum), _copies(total)


def nsa_decoding_importance(
    query: Tensor, key: Tensor, value: Tensor, scale_value: float, head_num: int, key_value_head_num: int,
    select_block_size: int, select_block_count: int, page_block_size: int, compress_block_size: int,
    compress_stride: int,
    *, layout: str = "TND", block_table: Tensor | None = None,
    actual_cmp_seq_kvlen: Sequence[int] | None = None, **unsupported: object,
) -> Tensor:  # fmt: skip
    """Return the importance by which :func:`npu_nsa_compress_attention_infer` selects, in the positions' form."""
    return _decoded(
        query,
        key,
        value,
        scale_value,
        key_value_head_num,
        (compress_block_size, compress_stride, select_block_size),
        layout,
        block_table,
        actual_cmp_seq_kvlen,
        **unsupported,
    )[1]


@golden(
    "NPU.npu_nsa_compress_attention_infer",
    OpInfo(
        constraint=selected_keys.pages, selection=RankedPositions(nsa_decoding_importance, outputs=2, positions_at=1)
    ),
)
def npu_nsa_compress_attention_infer(
    query: Tensor, key: Tensor, value: Tensor, scale_value: float, head_num: int, key_value_head_num: int,
    select_block_size: int, select_block_count: int, page_block_size: int, compress_block_size: int,
    compress_stride: int,
    *, layout: str = "TND", atten_mask: Tensor | None = None, block_table: Tensor | None = None,
    topk_mask: Tensor | None = None, actual_seq_qlen: Sequence[int] | None = None,
    actual_cmp_seq_kvlen: Sequence[int] | None = None, actual_sel_seq_kvlen: Sequence[int] | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return (attention to compressed keys, the most important blocks) of one query for each sequence.

    ``query`` is (B, N1, D) or, in ``layout`` BSND, (B, 1, N1, D). ``key`` and ``value`` are pages of a cache,
    (pages, page size, N2 * D), of which a row of ``block_table`` says which are a sequence's, ``actual_cmp_seq_kvlen``
    are lengths. Importance is that of :func:`npu_nsa_compress_attention`; the first block and the last two are always
    selected. There are ceil(((length - 1) * compress_stride + compress_block_size) / select_block_size) blocks.

    Positions are (B, N2, count) or (B, 1, N2, count), -1 where there are fewer blocks. Raises ValueError without table
    or lengths, and NotImplementedError for the masks and lengths that op-plugin documents as unsupported.
    """
    out, importance = _decoded(
        query,
        key,
        value,
        scale_value,
        key_value_head_num,
        (compress_block_size, compress_stride, select_block_size),
        layout,
        block_table,
        actual_cmp_seq_kvlen,
        atten_mask=atten_mask,
        topk_mask=topk_mask,
        actual_seq_qlen=actual_seq_qlen,
        actual_sel_seq_kvlen=actual_sel_seq_kvlen,
    )
    return out, highest(importance, select_block_count)[0]


def _compressed(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    scale: float,
    sizes: tuple[int, int, int],
    topk_mask: Tensor | None,
    atten_mask: Tensor | None,
    lengths: tuple[Lengths, Lengths, Lengths],
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return attention, maximum and sum of each row, and the importance of blocks; ``sizes`` as in `_importance`."""
    api = "npu_nsa_compress_attention"
    of_queries, of_compressed, of_blocks = lengths
    of_keys = [sequences(api, operand, "TND", of_compressed) for operand in (key, value)]
    parts, ranks = [], []
    for q, k, v, blocks in zip(
        sequences(api, query, "TND", of_queries), *of_keys, split_packed(api, of_blocks), strict=True
    ):
        shown = torch.ones(len(q), 1, len(k), dtype=torch.bool)
        if atten_mask is not None:
            shown = ~atten_mask[: len(q), : len(k)].bool().unsqueeze(1)
        attended = attend_selected(q, k, v, shown.__getitem__, scale)
        weights = _shared_weights(q, k, scale, shown, attended)
        importance = _importance(weights, blocks, sizes)
        if topk_mask is not None:
            importance = importance.masked_fill(topk_mask[: len(q), :blocks].bool().unsqueeze(1), torch.inf)
        parts.append((attended[0], *(_head_by_head(operand) for operand in attended[1:])))
        ranks.append(importance)
    out, maximum, total = (joined(operand, len(query), "TND") for operand in zip(*parts, strict=True))
    return out, maximum, total, aligned(ranks, len(query), "TND")


def _decoded(
    query: Tensor, key: Tensor, value: Tensor, scale: float, heads: int, sizes: tuple[int, int, int],
    layout: str, table: Tensor | None, lengths: Sequence[int] | None, **unsupported: object,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return attention and the importance of blocks, with the blocks that are always selected at inf."""
    api = "npu_nsa_compress_attention_infer"
    refuse(api, **unsupported, layout=None if layout in ("TND", "BSND") else layout)
    if lengths is None:
        raise ValueError(f"{api} needs actual_cmp_seq_kvlen")
    block_size, stride, select_size = sizes
    pages = [torch.unflatten(operand, -1, (heads, -1)) if operand.dim() == 3 else operand for operand in (key, value)]
    of_keys = [sequences(api, operand, "PA_BSND", lengths, table) for operand in pages]
    parts, ranks = [], []
    for q, k, v in zip(query.reshape(len(query), 1, *query.shape[-2:]), *of_keys, strict=True):
        shown = torch.ones(1, 1, len(k), dtype=torch.bool)
        attended = attend_selected(q, k, v, shown.__getitem__, scale)
        weights = _shared_weights(q, k, scale, shown, attended)
        blocks = -(-((len(k) - 1) * stride + block_size) // select_size)
        importance = _importance(weights, blocks, sizes)
        importance[..., 0] = importance[..., -2:] = torch.inf
        parts.append(attended[0])
        ranks.append(importance)
    out, importance = torch.stack(parts), aligned(ranks, 1, "BSND")
    return (out, importance) if layout == "BSND" else (out.squeeze(1), importance.squeeze(1))


def _shared_weights(
    q: Tensor, k: Tensor, scale: float, shown: Tensor, attended: tuple[Tensor, Tensor, Tensor]
) -> Tensor:
    """Return the sum of an attention's weights over the heads that share a key, (S1, N2, S2), detached."""
    _, maximum, total = attended
    groups = q.shape[1] // k.shape[1]
    summed = q.new_zeros(len(q), k.shape[1], len(k))
    for head in range(q.shape[1]):
        scores = q[:, head].detach() @ k[:, head // groups].detach().T * scale - maximum[:, head].unsqueeze(-1)
        divisor = total[:, head].masked_fill(total[:, head] == 0, 1.0).unsqueeze(-1)
        summed[:, head // groups] += torch.exp(scores.masked_fill(~shown[:, 0], -torch.inf)) / divisor
    return summed


def _importance(weights: Tensor, blocks: int, sizes: tuple[int, int, int]) -> Tensor:
    """Return the importance of ``blocks`` (S1, N2, blocks), of the weights of compressed keys.

    ``sizes`` are those of a compressed block, of the stride between two, and of a block that is selected.
    """
    block_size, stride, select_size = sizes
    per_block = select_size // stride
    block, a, b = (torch.arange(count) for count in (blocks, per_block, block_size // stride))
    places = per_block * (block.view(-1, 1, 1) + 1) - a.view(-1, 1) - b
    # how often the weight of a compressed key counts for a block
    times = weights.new_zeros(weights.shape[-1], blocks)
    there = (places >= 0) & (places < len(times))
    counted = (places[there], block.view(-1, 1, 1).expand_as(places)[there])
    times.index_put_(counted, times.new_ones(()), accumulate=True)
    return weights @ times


def _head_by_head(statistic: Tensor) -> Tensor:
    """Order (S1, N1) numbers of one sequence head by head, in the same shape."""
    return statistic.T.reshape(statistic.shape)


def _copies(statistic: Tensor) -> Tensor:
    return statistic.unsqueeze(-1).expand(*statistic.shape, _STATISTIC_COPIES)
