"""Kernels of native sparse attention: compressing blocks, ranking them, and attending to the selected ones."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from tests.support.cann.operators.gathered_attention import (
    Array,
    Tokens,
    attend,
    ends_to_ranges,
    gradients,
    like,
    single,
    wide,
)


def npu_nsa_compress(
    input: Tensor,  # noqa: A002
    weight: Tensor,
    compress_block_size: int,
    compress_stride: int,
    *,
    actual_seq_len: Sequence[int] | None = None,
) -> Tensor:
    x, w = wide(input), wide(weight)
    blocks = [
        (x[start : start + compress_block_size] * w[:, :, None]).sum(0)
        for start in _starts(actual_seq_len or (), compress_block_size, compress_stride)
    ]
    return like(np.array(blocks).reshape(-1, *x.shape[1:]), input)


def npu_nsa_compress_grad(
    grad: Tensor,
    input: Tensor,  # noqa: A002
    weight: Tensor,
    compress_block_size: int,
    compress_stride: int,
    *,
    actual_seq_len: Sequence[int] | None = None,
) -> tuple[Tensor, Tensor]:
    x, w, arriving = wide(input), wide(weight), wide(grad)
    of_x, of_w = np.zeros_like(x), np.zeros_like(w)
    for block, start in enumerate(_starts(actual_seq_len or (), compress_block_size, compress_stride)):
        for i in range(compress_block_size):
            of_x[start + i] += w[i][:, None] * arriving[block]
            of_w[i] += (x[start + i] * arriving[block]).sum(-1)
    return like(of_x, input), like(of_w, weight)


def npu_nsa_compress_infer(
    input: Tensor,  # noqa: A002
    weight: Tensor,
    slot_mapping: Tensor,
    compress_block_size: int,
    compress_stride: int,
    page_block_size: int,
    *,
    block_table: Tensor | None = None,
    actual_seq_len: Sequence[int] | None = None,
    cache: Tensor,
) -> Tensor:
    tokens = Tokens(input, "PA_BSND", actual_seq_len, block_table)
    x, w = wide(input), wide(weight)
    for sequence, length in enumerate(tokens.lengths):
        beyond = length - compress_block_size
        if beyond >= 0 and beyond % compress_stride == 0:
            block = sum(x[tokens.at(sequence, beyond + i)] * w[i][:, None] for i in range(compress_block_size))
            cache[int(slot_mapping[sequence])] = like(np.asarray(block), cache)
    return cache


def npu_nsa_compress_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    scale_value: float,
    head_num: int,
    compress_block_size: int,
    compress_stride: int,
    select_block_size: int,
    select_block_count: int,
    *,
    topk_mask: Tensor | None = None,
    atten_mask: Tensor | None = None,
    actual_seq_qlen: Sequence[int] | None = None,
    actual_cmp_seq_kvlen: Sequence[int] | None = None,
    actual_sel_seq_kvlen: Sequence[int] | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    q, k, v = wide(query), wide(key), wide(value)
    heads, shared = q.shape[1], k.shape[1]
    out = np.zeros((len(q), heads, v.shape[-1]))
    chosen = np.full((len(q), shared, select_block_count), -1, np.int32)
    maxima: list[float] = []
    totals: list[float] = []
    ranges = [ends_to_ranges(each or ()) for each in (actual_seq_qlen, actual_cmp_seq_kvlen, actual_sel_seq_kvlen)]
    for rows, columns, blocks in zip(*ranges, strict=True):
        weights = np.zeros((len(rows), shared, len(columns)))
        for head in range(heads):
            for row, token in enumerate(rows):
                seen = [c for c in range(len(columns)) if atten_mask is None or not bool(atten_mask[row, c])]
                places = [columns[c] for c in seen]
                group = head * shared // heads
                out[token, head], highest, total = attend(
                    q[token, head], k[places, group], v[places, group], scale_value
                )
                maxima.append(highest)
                totals.append(total)
                if seen:
                    weights[row, group, seen] += (
                        np.exp(k[places, group] @ q[token, head] * scale_value - highest) / total
                    )
        for row, token in enumerate(rows):
            forced = [b for b in range(len(blocks)) if topk_mask is not None and bool(topk_mask[row, b])]
            for group in range(shared):
                sizes = (compress_block_size, compress_stride, select_block_size)
                order = _ranked(weights[row, group], len(blocks), sizes, forced)[:select_block_count]
                chosen[token, group, : len(order)] = order
    statistics = [np.repeat(np.array(each).reshape(len(q), heads, 1), 8, -1) for each in (maxima, totals)]
    return like(out, query), torch.from_numpy(chosen), single(statistics[0]), single(statistics[1])


def npu_nsa_compress_attention_infer(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    scale_value: float,
    head_num: int,
    key_value_head_num: int,
    select_block_size: int,
    select_block_count: int,
    page_block_size: int,
    compress_block_size: int,
    compress_stride: int,
    *,
    layout: str = "TND",
    atten_mask: Tensor | None = None,
    block_table: Tensor | None = None,
    topk_mask: Tensor | None = None,
    actual_seq_qlen: Sequence[int] | None = None,
    actual_cmp_seq_kvlen: Sequence[int] | None = None,
    actual_sel_seq_kvlen: Sequence[int] | None = None,
) -> tuple[Tensor, Tensor]:
    shared = key_value_head_num
    k, v = (wide(each).reshape(*each.shape[:2], shared, -1) for each in (key, value))
    q = wide(query).reshape(len(query), head_num, -1)
    tokens = Tokens(key, "PA_BSND", actual_cmp_seq_kvlen, block_table)
    out = np.zeros((*q.shape[:2], v.shape[-1]))
    chosen = np.full((len(q), shared, select_block_count), -1, np.int32)
    for sequence, length in enumerate(tokens.lengths):
        reach = (length - 1) * compress_stride + compress_block_size
        blocks = (reach + select_block_size - 1) // select_block_size
        for group in range(shared):
            keys, values = (tokens.gather(each, sequence, range(length), group) for each in (k, v))
            weights = np.zeros(length)
            for head in range(group * head_num // shared, (group + 1) * head_num // shared):
                out[sequence, head], highest, total = attend(q[sequence, head], keys, values, scale_value)
                weights += np.exp(keys @ q[sequence, head] * scale_value - highest) / total
            sizes = (compress_block_size, compress_stride, select_block_size)
            order = _ranked(weights, blocks, sizes, sorted({0, blocks - 2, blocks - 1}))[:select_block_count]
            chosen[sequence, group, : len(order)] = order
    found = torch.from_numpy(chosen)
    if layout == "BSND":
        return like(out, query).unsqueeze(1), found.unsqueeze(1)
    return like(out, query), found


def npu_nsa_select_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    topk_indices: Tensor,
    scale_value: float,
    head_num: int,
    select_block_size: int,
    select_block_count: int,
    *,
    atten_mask: Tensor | None = None,
    actual_seq_qlen: Sequence[int] | None = None,
    actual_seq_kvlen: Sequence[int] | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    q, k, v = wide(query), wide(key), wide(value)
    out, maximum, total = (
        np.zeros((*q.shape[:2], v.shape[-1])),
        np.zeros((*q.shape[:2], 8)),
        np.zeros((*q.shape[:2], 8)),
    )
    for rows, columns in zip(
        ends_to_ranges(actual_seq_qlen or ()), ends_to_ranges(actual_seq_kvlen or ()), strict=True
    ):
        for token in rows:
            for head in range(q.shape[1]):
                group = head * k.shape[1] // q.shape[1]
                places = _selected(topk_indices[token, group], select_block_size, columns)
                out[token, head], maximum[token, head], total[token, head] = attend(
                    q[token, head], k[places, group], v[places, group], scale_value
                )
    return like(out, query), single(maximum), single(total)


def npu_nsa_select_attention_grad(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_out: Tensor,
    softmax_max: Tensor,
    softmax_sum: Tensor,
    topk_indices: Tensor,
    scale_value: float,
    head_num: int,
    select_block_size: int,
    select_block_count: int,
    *,
    atten_mask: Tensor | None = None,
    actual_seq_qlen: Sequence[int] | None = None,
    actual_seq_kvlen: Sequence[int] | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    q, k, v, arriving, out = (wide(each) for each in (query, key, value, grad, attention_out))
    maximum, total = wide(softmax_max)[..., 0], wide(softmax_sum)[..., 0]
    of_q, of_k, of_v = np.zeros_like(q), np.zeros_like(k), np.zeros_like(v)
    for rows, columns in zip(
        ends_to_ranges(actual_seq_qlen or ()), ends_to_ranges(actual_seq_kvlen or ()), strict=True
    ):
        for token in rows:
            for head in range(q.shape[1]):
                at, group = (token, head), head * k.shape[1] // q.shape[1]
                places = _selected(topk_indices[token, group], select_block_size, columns)
                keys, values = k[places, group], v[places, group]
                weights = np.exp(keys @ q[at] * scale_value - maximum[at]) / (total[at] or 1.0)
                of_q[at], more_k, more_v = gradients(q[at], keys, values, scale_value, weights, out[at], arriving[at])
                np.add.at(of_k, (places, group), more_k)
                np.add.at(of_v, (places, group), more_v)
    return like(of_q, query), like(of_k, key), like(of_v, value)


def npu_nsa_select_attention_infer(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    topk_indices: Tensor,
    scale_value: float,
    head_num: int,
    key_value_head_num: int,
    select_block_size: int,
    select_block_count: int,
    page_block_size: int,
    *,
    layout: str = "BSND",
    atten_mask: Tensor | None = None,
    block_table: Tensor | None = None,
    actual_seq_qlen: Sequence[int] | None = None,
    actual_seq_kvlen: Sequence[int] | None = None,
) -> Tensor:
    k, v = (wide(each).reshape(*each.shape[:2], key_value_head_num, -1) for each in (key, value))
    q = wide(query).reshape(len(query), head_num, -1)
    tokens = Tokens(key, "PA_BSND", actual_seq_kvlen, block_table)
    out = np.zeros((*q.shape[:2], v.shape[-1]))
    for sequence, length in enumerate(tokens.lengths):
        for head in range(head_num):
            group = head * key_value_head_num // head_num
            places = _selected(topk_indices[sequence, group], select_block_size, range(length))
            keys, values = (tokens.gather(each, sequence, places, group) for each in (k, v))
            out[sequence, head] = attend(q[sequence, head], keys, values, scale_value)[0]
    shape = {"BSND": (len(q), 1, head_num, -1), "BSH": (len(q), 1, head_num * v.shape[-1]), "TND": out.shape}[layout]
    return like(out.reshape(shape), query)


def _starts(ends: Sequence[int], size: int, stride: int) -> list[int]:
    """Where the blocks of packed sequences begin."""
    return [
        start for rows in ends_to_ranges(ends) for start in range(rows.start, rows.stop - size + 1, stride) if len(rows)
    ]


def _ranked(weights: Array, blocks: int, sizes: tuple[int, int, int], forced: Sequence[int]) -> list[int]:
    """The blocks in order of importance, those that are forced in front."""
    block_size, stride, select_size = sizes
    importance = np.zeros(blocks)
    for block in range(blocks):
        for m in range(select_size // stride):
            for n in range(block_size // stride):
                place = select_size // stride * (block + 1) - m - n
                importance[block] += weights[place] if 0 <= place < len(weights) else 0.0
    return sorted(
        range(blocks), key=lambda block: (block not in forced, 0 if block in forced else -importance[block], block)
    )


def _selected(blocks: Tensor, size: int, columns: range) -> list[int]:
    places: list[int] = []
    for block in blocks.tolist():
        if block < 0:
            break
        places += columns[block * size : (block + 1) * size]
    return places
