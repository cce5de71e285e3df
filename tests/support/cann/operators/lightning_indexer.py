"""Kernels of the lightning indexer and of the loss that trains it, one query at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from tests.support.cann.operators.by_schema import Arguments, by_schema
from tests.support.cann.operators.gathered_attention import Array, Tokens, like, single, wide

FAR = 9223372036854775807


@by_schema
def npu_lightning_indexer(args: Arguments) -> tuple[Tensor, Tensor]:
    asked = Tokens(args.query, args.layout_query, args.actual_seq_lengths_query)
    there = Tokens(args.key, args.layout_key, args.actual_seq_lengths_key, args.block_table)
    arrays = (wide(args.query), wide(args.weights), wide(args.key))
    positions, values = _top(arrays, asked, there, args.sparse_count, args.sparse_mode)
    found = torch.from_numpy(positions)
    return found, like(values, args.query) if args.return_value else args.query.new_empty(0)


@by_schema
def npu_quant_lightning_indexer(args: Arguments) -> Tensor:
    q = wide(args.query) * wide(args.query_dequant_scale)[..., None]
    k = wide(args.key) * wide(args.key_dequant_scale)[..., None]
    asked = Tokens(args.query, args.layout_query, args.actual_seq_lengths_query)
    there = Tokens(args.key, args.layout_key, args.actual_seq_lengths_key, args.block_table)
    return torch.from_numpy(_top((q, wide(args.weights), k), asked, there, args.sparse_count, args.sparse_mode)[0])


@by_schema
def npu_lightning_indexer_grad(args: Arguments) -> tuple[Tensor, Tensor, Tensor]:
    q, k, w, arriving = (wide(each) for each in (args.query, args.key, args.weights, args.dy))
    of_q, of_k, of_w = np.zeros_like(q), np.zeros_like(k), np.zeros_like(w)
    asked = Tokens(args.query, args.layout or "BSND", args.actual_seq_lengths_query)
    there = Tokens(args.key, args.layout or "BSND", args.actual_seq_lengths_key)
    heads, shared = q.shape[-2], k.shape[-2]
    for sequence in range(len(asked)):
        for token in range(asked.lengths[sequence]):
            at = asked.at(sequence, token)
            chosen = args.sparse_indices[at].reshape(shared, -1).tolist()
            grads = arriving[at].reshape(shared, -1)
            for head in range(heads):
                group = head * shared // heads
                for rank, position in enumerate(chosen[group]):
                    if position < 0:
                        continue
                    place = (*there.at(sequence, position), group)
                    product = q[(*at, head)] @ k[place]
                    if product > 0:
                        grad = grads[group, rank]
                        of_w[(*at, head)] += grad * product
                        of_q[(*at, head)] += grad * w[(*at, head)] * k[place]
                        of_k[place] += grad * w[(*at, head)] * q[(*at, head)]
    return like(of_q, args.query), like(of_k, args.key), like(of_w, args.weights)


@by_schema
def npu_dense_lightning_indexer_softmax_lse(args: Arguments) -> tuple[Tensor, Tensor]:
    q, k, w = wide(args.query_index), wide(args.key_index), wide(args.weights)
    asked = Tokens(args.query_index, args.layout or "BSND", args.actual_seq_qlen)
    there = Tokens(args.key_index, args.layout or "BSND", args.actual_seq_klen)
    shared = k.shape[-2]
    maximum, total = np.zeros((*q.shape[:-2], shared)), np.zeros((*q.shape[:-2], shared))
    for sequence in range(len(asked)):
        for token in range(asked.lengths[sequence]):
            limit = _limit(asked, there, sequence, token, args.sparse_mode)
            for group in range(shared):
                at = asked.at(sequence, token)
                scores = _scores(q[at], w[at], there.gather(k, sequence, range(limit), group), group, shared)
                highest = scores.max() if limit else -np.inf
                maximum[(*at, group)], total[(*at, group)] = highest, np.exp(scores - highest).sum()
    return single(np.moveaxis(maximum, -1, -2)), single(np.moveaxis(total, -1, -2))


@by_schema
def npu_dense_lightning_indexer_grad_kl_loss(args: Arguments) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    attention = (args.query, args.key, args.query_rope, args.key_rope, args.softmax_max, args.softmax_sum)
    of_index = [np.moveaxis(wide(each), -2, -1) for each in (args.softmax_max_index, args.softmax_sum_index)]
    indexer = (args.query_index, args.key_index, args.weights)
    lengths = (args.actual_seq_qlen, args.actual_seq_klen, args.layout or "BSND", args.sparse_mode)
    return _loss(attention, indexer, args.scale_value, lengths, None, of_index)


@by_schema
def npu_sparse_lightning_indexer_grad_kl_loss(args: Arguments) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    attention = (args.query, args.key, args.query_rope, args.key_rope, args.softmax_max, args.softmax_sum)
    indexer = (args.query_index, args.key_index, args.weights)
    lengths = (args.actual_seq_qlen, args.actual_seq_klen, args.layout or "BSND", args.sparse_mode)
    return _loss(attention, indexer, args.scale_value, lengths, args.sparse_indices, None)


def _loss(
    attention: tuple[Any, ...],
    indexer: tuple[Tensor, Tensor, Tensor],
    scale: float,
    lengths: tuple[Any, Any, str, int | None],
    chosen: Tensor | None,
    of_index: list[Array] | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    query, key, query_rope, key_rope, softmax_max, softmax_sum = attention
    q, k = wide(query), wide(key)
    if query_rope is not None:
        q, k = np.concatenate([q, wide(query_rope)], -1), np.concatenate([k, wide(key_rope)], -1)
    # (..., N2, S1, G) to (..., S1, N1)
    maximum, total = (np.moveaxis(wide(each), -3, -2) for each in (softmax_max, softmax_sum))
    maximum, total = (each.reshape(*each.shape[:-2], -1) for each in (maximum, total))
    qi, ki, w = (wide(each) for each in indexer)
    of_q, of_k, of_w, loss = np.zeros_like(qi), np.zeros_like(ki), np.zeros_like(w), 0.0
    asked, there = Tokens(query, lengths[2], lengths[0]), Tokens(key, lengths[2], lengths[1])
    heads, shared = q.shape[-2], k.shape[-2]
    for sequence in range(len(asked)):
        for token in range(asked.lengths[sequence]):
            at = asked.at(sequence, token)
            seen = list(range(_limit(asked, there, sequence, token, lengths[3])))
            if chosen is not None:
                seen = [each for each in chosen[at].reshape(-1).tolist() if 0 <= each < len(seen)]
            if not seen:
                continue
            p = np.zeros(len(seen))
            for head in range(heads):
                keys = there.gather(k, sequence, seen, head * shared // heads)
                p += np.exp(keys @ q[(*at, head)] * scale - maximum[(*at, head)]) / total[(*at, head)] / heads
            keys = there.gather(ki, sequence, seen, 0)
            scores = _scores(qi[at], w[at], keys, 0, 1)
            if of_index is None:
                estimate = np.exp(scores - scores.max())
                estimate /= estimate.sum()
            else:
                estimate = np.exp(scores - of_index[0][(*at, 0)]) / of_index[1][(*at, 0)]
            loss += float((p * (np.log(np.maximum(p, 1e-8)) - np.log(np.maximum(estimate, 1e-8)))).sum())
            grad = estimate - p
            for head in range(qi.shape[-2]):
                products = keys @ qi[(*at, head)]
                on = grad * (products > 0)
                of_w[(*at, head)] = on @ products
                of_q[(*at, head)] = w[(*at, head)] * (on @ keys)
                for place, amount in zip(seen, on, strict=True):
                    of_k[(*there.at(sequence, place), 0)] += amount * w[(*at, head)] * qi[(*at, head)]
    return like(of_q, indexer[0]), like(of_k, indexer[1]), like(of_w, indexer[2]), torch.tensor([loss]).float()


def _limit(asked: Tokens, there: Tokens, sequence: int, token: int, mode: int | None) -> int:
    """How many of the first keys a query sees."""
    keys = there.lengths[sequence]
    return keys if mode == 0 else max(0, min(keys, keys - asked.lengths[sequence] + token + 1))


def _scores(q: Array, w: Array, keys: Array, group: int, shared: int) -> Array:
    """The scores of the keys of one group of heads."""
    per_group = len(q) // shared
    total = np.zeros(len(keys))
    for head in range(group * per_group, (group + 1) * per_group):
        total += w[head] * np.maximum(keys @ q[head], 0.0)
    return total


def _top(
    arrays: tuple[Array, Array, Array], asked: Tokens, there: Tokens, count: int, mode: int
) -> tuple[Array, Array]:
    q, w, k = arrays
    shared = k.shape[-2]
    shape = (*q.shape[:-2], shared, count)
    positions, values = np.full(shape, -1, np.int32), np.full(shape, -np.inf)
    for sequence in range(len(asked)):
        for token in range(asked.lengths[sequence]):
            limit = _limit(asked, there, sequence, token, mode)
            for group in range(shared):
                at = asked.at(sequence, token)
                scores = _scores(q[at], w[at], there.gather(k, sequence, range(limit), group), group, shared)
                order = sorted(range(limit), key=lambda place, scores=scores: (-scores[place], place))[:count]
                positions[(*at, group)][: len(order)] = order
                values[(*at, group)][: len(order)] = scores[order]
    return positions, values
