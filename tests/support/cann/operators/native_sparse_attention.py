"""Kernels of native sparse attention: compressing blocks, ranking them, and attending to the selected ones."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from tests.support.cann.operators.by_schema import Arguments, by_schema
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


@by_schema
def npu_nsa_compress(args: Arguments) -> Tensor:
    x, w = wide(args.input), wide(args.weight)
    blocks = [
        (x[start : start + args.compress_block_size] * w[:, :, None]).sum(0)
        for start in _starts(args.actual_seq_len or (), args.compress_block_size, args.compress_stride)
    ]
    return like(np.array(blocks).reshape(-1, *x.shape[1:]), args.input)


@by_schema
def npu_nsa_compress_grad(args: Arguments) -> tuple[Tensor, Tensor]:
    x, w, arriving = wide(args.input), wide(args.weight), wide(args.grad)
    of_x, of_w = np.zeros_like(x), np.zeros_like(w)
    for block, start in enumerate(_starts(args.actual_seq_len or (), args.compress_block_size, args.compress_stride)):
        for i in range(args.compress_block_size):
            of_x[start + i] += w[i][:, None] * arriving[block]
            of_w[i] += (x[start + i] * arriving[block]).sum(-1)
    return like(of_x, args.input), like(of_w, args.weight)


@by_schema
def npu_nsa_compress_infer(args: Arguments) -> Tensor:
    tokens = Tokens(args.input, "PA_BSND", args.actual_seq_len, args.block_table)
    x, w = wide(args.input), wide(args.weight)
    for sequence, length in enumerate(tokens.lengths):
        beyond = length - args.compress_block_size
        if beyond >= 0 and beyond % args.compress_stride == 0:
            block = sum(x[tokens.at(sequence, beyond + i)] * w[i][:, None] for i in range(args.compress_block_size))
            args.cache[int(args.slot_mapping[sequence])] = like(np.asarray(block), args.cache)
    return args.cache


@by_schema
def npu_nsa_compress_attention(args: Arguments) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    q, k, v = wide(args.query), wide(args.key), wide(args.value)
    heads, shared = q.shape[1], k.shape[1]
    out = np.zeros((len(q), heads, v.shape[-1]))
    chosen = np.full((len(q), shared, args.select_block_count), -1, np.int32)
    maxima: list[float] = []
    totals: list[float] = []
    ranges = [
        ends_to_ranges(each or ())
        for each in (args.actual_seq_qlen, args.actual_cmp_seq_kvlen, args.actual_sel_seq_kvlen)
    ]
    for rows, columns, blocks in zip(*ranges, strict=True):
        weights = np.zeros((len(rows), shared, len(columns)))
        for head in range(heads):
            for row, token in enumerate(rows):
                seen = [c for c in range(len(columns)) if args.atten_mask is None or not bool(args.atten_mask[row, c])]
                places = [columns[c] for c in seen]
                group = head * shared // heads
                out[token, head], highest, total = attend(
                    q[token, head], k[places, group], v[places, group], args.scale_value
                )
                maxima.append(highest)
                totals.append(total)
                if seen:
                    weights[row, group, seen] += (
                        np.exp(k[places, group] @ q[token, head] * args.scale_value - highest) / total
                    )
        for row, token in enumerate(rows):
            forced = [b for b in range(len(blocks)) if args.topk_mask is not None and bool(args.topk_mask[row, b])]
            for group in range(shared):
                sizes = (args.compress_block_size, args.compress_stride, args.select_block_size)
                order = _ranked(weights[row, group], len(blocks), sizes, forced)[: args.select_block_count]
                chosen[token, group, : len(order)] = order
    statistics = [np.repeat(np.array(each).reshape(len(q), heads, 1), 8, -1) for each in (maxima, totals)]
    return like(out, args.query), torch.from_numpy(chosen), single(statistics[0]), single(statistics[1])


@by_schema
def npu_nsa_compress_attention_infer(args: Arguments) -> tuple[Tensor, Tensor]:
    shared = args.key_value_head_num
    k, v = (wide(each).reshape(*each.shape[:2], shared, -1) for each in (args.key, args.value))
    q = wide(args.query).reshape(len(args.query), args.head_num, -1)
    tokens = Tokens(args.key, "PA_BSND", args.actual_cmp_seq_kvlen, args.block_table)
    out = np.zeros((*q.shape[:2], v.shape[-1]))
    chosen = np.full((len(q), shared, args.select_block_count), -1, np.int32)
    for sequence, length in enumerate(tokens.lengths):
        reach = (length - 1) * args.compress_stride + args.compress_block_size
        blocks = (reach + args.select_block_size - 1) // args.select_block_size
        for group in range(shared):
            keys, values = (tokens.gather(each, sequence, range(length), group) for each in (k, v))
            weights = np.zeros(length)
            for head in range(group * args.head_num // shared, (group + 1) * args.head_num // shared):
                out[sequence, head], highest, total = attend(q[sequence, head], keys, values, args.scale_value)
                weights += np.exp(keys @ q[sequence, head] * args.scale_value - highest) / total
            sizes = (args.compress_block_size, args.compress_stride, args.select_block_size)
            order = _ranked(weights, blocks, sizes, sorted({0, blocks - 2, blocks - 1}))[: args.select_block_count]
            chosen[sequence, group, : len(order)] = order
    found = torch.from_numpy(chosen)
    if args.layout == "BSND":
        return like(out, args.query).unsqueeze(1), found.unsqueeze(1)
    return like(out, args.query), found


@by_schema
def npu_nsa_select_attention(args: Arguments) -> tuple[Tensor, Tensor, Tensor]:
    q, k, v = wide(args.query), wide(args.key), wide(args.value)
    out, maximum, total = (
        np.zeros((*q.shape[:2], v.shape[-1])),
        np.zeros((*q.shape[:2], 8)),
        np.zeros((*q.shape[:2], 8)),
    )
    for rows, columns in zip(
        ends_to_ranges(args.actual_seq_qlen or ()), ends_to_ranges(args.actual_seq_kvlen or ()), strict=True
    ):
        for token in rows:
            for head in range(q.shape[1]):
                group = head * k.shape[1] // q.shape[1]
                places = _selected(args.topk_indices[token, group], args.select_block_size, columns)
                out[token, head], maximum[token, head], total[token, head] = attend(
                    q[token, head], k[places, group], v[places, group], args.scale_value
                )
    return like(out, args.query), single(maximum), single(total)


@by_schema
def npu_nsa_select_attention_grad(args: Arguments) -> tuple[Tensor, Tensor, Tensor]:
    q, k, v, arriving, out = (wide(each) for each in (args.query, args.key, args.value, args.grad, args.attention_out))
    maximum, total = wide(args.softmax_max)[..., 0], wide(args.softmax_sum)[..., 0]
    of_q, of_k, of_v = np.zeros_like(q), np.zeros_like(k), np.zeros_like(v)
    for rows, columns in zip(
        ends_to_ranges(args.actual_seq_qlen or ()), ends_to_ranges(args.actual_seq_kvlen or ()), strict=True
    ):
        for token in rows:
            for head in range(q.shape[1]):
                at, group = (token, head), head * k.shape[1] // q.shape[1]
                places = _selected(args.topk_indices[token, group], args.select_block_size, columns)
                keys, values = k[places, group], v[places, group]
                weights = np.exp(keys @ q[at] * args.scale_value - maximum[at]) / (total[at] or 1.0)
                of_q[at], more_k, more_v = gradients(
                    q[at], keys, values, args.scale_value, weights, out[at], arriving[at]
                )
                np.add.at(of_k, (places, group), more_k)
                np.add.at(of_v, (places, group), more_v)
    return like(of_q, args.query), like(of_k, args.key), like(of_v, args.value)


@by_schema
def npu_nsa_select_attention_infer(args: Arguments) -> Tensor:
    k, v = (wide(each).reshape(*each.shape[:2], args.key_value_head_num, -1) for each in (args.key, args.value))
    q = wide(args.query).reshape(len(args.query), args.head_num, -1)
    tokens = Tokens(args.key, "PA_BSND", args.actual_seq_kvlen, args.block_table)
    out = np.zeros((*q.shape[:2], v.shape[-1]))
    for sequence, length in enumerate(tokens.lengths):
        for head in range(args.head_num):
            group = head * args.key_value_head_num // args.head_num
            places = _selected(args.topk_indices[sequence, group], args.select_block_size, range(length))
            keys, values = (tokens.gather(each, sequence, places, group) for each in (k, v))
            out[sequence, head] = attend(q[sequence, head], keys, values, args.scale_value)[0]
    shape = {"BSND": (len(q), 1, args.head_num, -1), "BSH": (len(q), 1, args.head_num * v.shape[-1]), "TND": out.shape}[
        args.layout
    ]
    return like(out.reshape(shape), args.query)


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
