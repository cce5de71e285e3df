"""Kernels of attention to selected keys, to paired blocks, over paths, and of ring attention, written out in loops."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

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

FAR = 9223372036854775807


@by_schema
def npu_sparse_flash_attention(args: Arguments) -> tuple[Tensor, Tensor, Tensor]:
    q, k = _roped(args.query, args.query_rope), _roped(args.key, args.key_rope)
    v = wide(args.key if args.value is None else args.value)
    asked = Tokens(args.query, args.layout_query, args.actual_seq_lengths_query)
    there = Tokens(args.key, args.layout_kv, args.actual_seq_lengths_kv, args.block_table)
    heads, shared = q.shape[-2], k.shape[-2]
    out = np.zeros((*q.shape[:-1], v.shape[-1]))
    maximum, total = np.zeros(q.shape[:-1]), np.zeros(q.shape[:-1])
    for place, head, sequence, seen in _seen(
        asked, there, args.sparse_indices, heads, shared, args.sparse_block_size, args.sparse_mode
    ):
        keys, values = (there.gather(each, sequence, seen, head * shared // heads) for each in (k, v))
        sink = None if args.sinks is None else float(args.sinks[head])
        out[(*place, head)], highest, summed = attend(q[(*place, head)], keys, values, args.scale_value, sink)
        maximum[(*place, head)], total[(*place, head)] = highest if seen or sink is not None else 0.0, summed
    if not args.return_softmax_lse:
        return like(out, args.query), torch.empty(0), torch.empty(0)
    return like(out, args.query), single(_grouped(maximum, shared)), single(_grouped(total, shared))


@by_schema
def npu_sparse_flash_attention_grad(args: Arguments) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    q, k = _roped(args.query, args.query_rope), _roped(args.key, args.key_rope)
    v, arriving, saved = wide(args.key if args.value is None else args.value), wide(args.d_out), wide(args.out)
    maximum, total = (_ungrouped(wide(each)) for each in (args.softmax_max, args.softmax_sum))
    asked = Tokens(args.query, args.layout or "BSND", args.actual_seq_qlen)
    there = Tokens(args.key, args.layout or "BSND", args.actual_seq_kvlen)
    heads, shared = q.shape[-2], k.shape[-2]
    of_q, of_k, of_v = np.zeros_like(q), np.zeros_like(k), np.zeros_like(v)
    mode = 3 if args.sparse_mode is None else args.sparse_mode
    for place, head, sequence, seen in _seen(
        asked, there, args.sparse_indices, heads, shared, args.sparse_block_size, mode
    ):
        at = (*place, head)
        keys, values = (there.gather(each, sequence, seen, head * shared // heads) for each in (k, v))
        weights = np.exp(keys @ q[at] * args.scale_value - maximum[at]) / (total[at] or 1.0)
        of_q[at], more_k, more_v = gradients(q[at], keys, values, args.scale_value, weights, saved[at], arriving[at])
        for token, of_key, of_value in zip(seen, more_k, more_v, strict=True):
            of_k[(*there.at(sequence, token), head * shared // heads)] += of_key
            of_v[(*there.at(sequence, token), head * shared // heads)] += of_value
    own_q, own_k = args.query.shape[-1], args.key.shape[-1]
    nothing = args.query.new_empty(0)
    return (
        like(of_q[..., :own_q], args.query),
        like(of_k[..., :own_k] + (of_v if args.value is None else 0.0), args.key),
        nothing if args.value is None else like(of_v, args.value),
        nothing if args.query_rope is None else like(of_q[..., own_q:], args.query_rope),
        nothing if args.key_rope is None else like(of_k[..., own_k:], args.key_rope),
    )


@by_schema
def npu_kv_quant_sparse_flash_attention(args: Arguments) -> Tensor:
    own = args.query.shape[-1] - args.rope_head_dim
    end = own + 2 * args.rope_head_dim
    rope = args.key[..., own:end].contiguous().view(args.query.dtype)
    scales = args.key[..., end:].contiguous().view(torch.float32)
    plain = torch.stack([args.key[..., d].float() * scales[..., d // args.tile_size] for d in range(own)], -1)
    return npu_sparse_flash_attention(
        args.query[..., :own].contiguous(),
        plain,
        plain,
        args.sparse_indices,
        args.scale_value,
        block_table=args.block_table,
        actual_seq_lengths_query=args.actual_seq_lengths_query,
        actual_seq_lengths_kv=args.actual_seq_lengths_kv,
        query_rope=args.query[..., own:].contiguous(),
        key_rope=rope,
        sparse_block_size=args.sparse_block_size,
        layout_query=args.layout_query,
        layout_kv=args.layout_kv,
        sparse_mode=args.sparse_mode,
    )[0]


@by_schema
def npu_block_sparse_attention(args: Arguments) -> tuple[Tensor, Tensor]:
    q, k, v = (wide(each) for each in (args.query, args.key, args.value))
    out, logarithm = np.zeros((*q.shape[:-1], v.shape[-1])), np.full((*q.shape[:-1], 1), -np.inf)
    lengths = (args.actual_seq_lengths, args.actual_seq_lengths_kv)
    for at, places in _paired(
        args.query, args.key, args.block_sparse_mask, args.block_shape, args.q_input_layout, *lengths
    ):
        gathered = [np.array([each[place] for place in places]).reshape(-1, each.shape[-1]) for each in (k, v)]
        out[at], highest, total = attend(q[at], *gathered, args.scale_value)
        logarithm[at] = highest + np.log(total) if total else -np.inf
    return like(out, args.query), single(logarithm)


@by_schema
def npu_block_sparse_attention_backward(args: Arguments) -> tuple[Tensor, Tensor, Tensor]:
    q, k, v, arriving, out, logarithm = (
        wide(each) for each in (args.query, args.key, args.value, args.d_out, args.attention_out, args.softmax_lse)
    )
    of_q, of_k, of_v = np.zeros_like(q), np.zeros_like(k), np.zeros_like(v)
    lengths = (args.actual_seq_lengths, args.actual_seq_lengths_kv)
    for at, places in _paired(
        args.query, args.key, args.block_sparse_mask, args.block_shape or [128, 128], args.q_input_layout, *lengths
    ):
        keys, values = (np.array([each[place] for place in places]).reshape(-1, each.shape[-1]) for each in (k, v))
        weights = np.exp(keys @ q[at] * args.scale_value - logarithm[at])
        of_q[at], more_k, more_v = gradients(q[at], keys, values, args.scale_value, weights, out[at], arriving[at])
        for place, of_key, of_value in zip(places, more_k, more_v, strict=True):
            of_k[place] += of_key
            of_v[place] += of_value
    return like(of_q, args.query), like(of_k, args.key), like(of_v, args.value)


@by_schema
def npu_fused_floyd_attention(args: Arguments) -> tuple[Tensor, Tensor, Tensor]:
    q, k1, v1, k2, v2 = (wide(each) for each in (args.query_ik, args.key_ij, args.value_ij, args.key_jk, args.value_jk))
    out, maximum, total = np.zeros_like(q), np.zeros((*q.shape[:-1], 8)), np.zeros((*q.shape[:-1], 8))
    for b, h, i, k, seen in _paths(q, k1, args.atten_mask):
        keys, values = k1[b, h, i, seen] + k2[b, h, seen, k], v1[b, h, i, seen] + v2[b, h, seen, k]
        out[b, h, i, k], maximum[b, h, i, k], total[b, h, i, k] = attend(q[b, h, i, k], keys, values, args.scale_value)
    return single(maximum), single(total), like(out, args.query_ik)


@by_schema
def npu_fused_floyd_attention_backward(args: Arguments) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    q, k1, v1, k2, v2 = arrays = [
        wide(each) for each in (args.query_ik, args.key_ij, args.value_ij, args.key_jk, args.value_jk)
    ]
    of_q, of_k1, of_v1, of_k2, of_v2 = found = [np.zeros_like(each) for each in arrays]
    arriving, out, maximum, total = (
        wide(each) for each in (args.grad_output, args.attention_out, args.softmax_max, args.softmax_sum)
    )
    for b, h, i, k, seen in _paths(q, k1, args.atten_mask):
        at = (b, h, i, k)
        keys, values = k1[b, h, i, seen] + k2[b, h, seen, k], v1[b, h, i, seen] + v2[b, h, seen, k]
        weights = np.exp(keys @ q[at] * args.scale_value - maximum[(*at, 0)]) / (total[(*at, 0)] or 1.0)
        of_q[at], more_k, more_v = gradients(q[at], keys, values, args.scale_value, weights, out[at], arriving[at])
        of_k1[b, h, i, seen] += more_k
        of_k2[b, h, seen, k] += more_k
        of_v1[b, h, i, seen] += more_v
        of_v2[b, h, seen, k] += more_v
    given = (args.query_ik, args.key_ij, args.value_ij, args.key_jk, args.value_jk)
    of_query, *rest = (like(array, tensor) for array, tensor in zip(found, given, strict=True))
    return of_query, rest[0], rest[1], rest[2], rest[3]


@by_schema
def npu_ring_attention_update(args: Arguments) -> tuple[Tensor, Tensor, Tensor]:
    m1, s1, m2, s2 = (
        wide(e) for e in (args.prev_softmax_max, args.prev_softmax_sum, args.cur_softmax_max, args.cur_softmax_sum)
    )
    highest = np.maximum(m1, m2)
    total = s1 * np.exp(m1 - highest) + s2 * np.exp(m2 - highest)
    a1, a2 = wide(args.prev_attn_out), wide(args.cur_attn_out)
    f1, f2 = s1 * np.exp(m1 - highest) / total, s2 * np.exp(m2 - highest) / total
    out = np.zeros_like(a1)
    if args.input_layout == "SBH":
        heads = m1.shape[1]
        width = a1.shape[2] // heads
        for s, b, column in np.ndindex(*a1.shape):
            at = (b, column // width, s, 0)
            out[s, b, column] = a1[s, b, column] * f1[at] + a2[s, b, column] * f2[at]
        return like(out, args.prev_attn_out), single(highest), single(total)
    tokens, heads, _ = a1.shape
    where = {(t, n): (t, n, 0) for t in range(tokens) for n in range(heads)}
    if args.input_softmax_layout != "TND":
        assert args.actual_seq_qlen is not None
        for rows in ends_to_ranges(args.actual_seq_qlen):
            for t in rows:
                for n in range(heads):
                    flat = rows.start * heads + n * len(rows) + t - rows.start
                    where[t, n] = (flat // heads, flat % heads, 0)
    for (t, n), at in where.items():
        out[t, n] = a1[t, n] * f1[at] + a2[t, n] * f2[at]
    return like(out, args.prev_attn_out), single(highest), single(total)


def _roped(tensor: Tensor, rope: Tensor | None) -> Array:
    return wide(tensor) if rope is None else np.concatenate([wide(tensor), wide(rope)], -1)


def _seen(
    asked: Tokens, there: Tokens, indices: Tensor, heads: int, shared: int, size: int, mode: int
) -> Iterator[tuple[tuple[int, ...], int, int, list[int]]]:
    """Place and head of each query, its sequence, and which of its keys it sees."""
    for sequence in range(len(asked)):
        queries, keys = asked.lengths[sequence], there.lengths[sequence]
        for token in range(queries):
            place = asked.at(sequence, token)
            limit = keys if mode == 0 else min(keys, keys - queries + token + 1)
            for head in range(heads):
                seen: list[int] = []
                for block in indices[(*place, head * shared // heads)].tolist():
                    if block < 0:
                        break
                    seen += [each for each in range(block * size, (block + 1) * size) if each < limit]
                yield place, head, sequence, seen


def _grouped(statistic: Array, shared: int) -> Array:
    return np.moveaxis(statistic.reshape(*statistic.shape[:-1], shared, -1), -2, -3)


def _ungrouped(statistic: Array) -> Array:
    by_query = np.moveaxis(statistic, -3, -2)
    return by_query.reshape(*by_query.shape[:-2], -1)


def _paired(
    query: Tensor,
    key: Tensor,
    mask: Tensor,
    shape: Sequence[int],
    layout: str,
    lengths: Sequence[int] | None,
    kv_lengths: Sequence[int] | None,
) -> Iterator[tuple[tuple[int, ...], list[tuple[int, ...]]]]:
    """Place of each query of each head, and the places of the keys that it sees."""
    packed = layout == "TND"
    heads, shared = (query.shape[1], key.shape[1])
    of_q = list(lengths or [query.shape[2]] * query.shape[0])
    of_kv = list(kv_lengths or [key.shape[2]] * key.shape[0])
    for sequence, (rows, columns) in enumerate(zip(of_q, of_kv, strict=True)):
        for row in range(rows):
            for head in range(heads):
                group = head * shared // heads
                seen = [c for c in range(columns) if mask[sequence, head, row // shape[0], c // shape[1]] != 0]
                if packed:
                    at: tuple[int, ...] = (sum(of_q[:sequence]) + row, head)
                    yield at, [(sum(of_kv[:sequence]) + c, group) for c in seen]
                else:
                    yield (sequence, head, row), [(sequence, group, c) for c in seen]


def _paths(q: Array, k1: Array, mask: Tensor | None) -> Iterator[tuple[int, int, int, int, list[int]]]:
    for b, h, i, k in np.ndindex(*q.shape[:4]):
        middle = range(k1.shape[3])
        yield b, h, i, k, [j for j in middle if mask is None or not bool(mask[b, 0, i, 0, j])]
