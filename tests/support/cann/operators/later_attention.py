"""Kernels of the later versions of fused attention, forward and gradient, one query of one head at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tests.support.cann.operators.by_schema import Arguments, by_schema
from tests.support.cann.operators.gathered_attention import Array, attend, ends_to_ranges, like, single, wide

FAR = 2147483647


@dataclass(frozen=True)
class Mask:
    given: Tensor | None
    mode: int
    before: int
    after: int
    prefix: Sequence[int] | None

    def hides(self, sequence: int, last: int, head: int, row: int, column: int, rows: int, columns: int) -> bool:
        if self.given is None:
            return False
        from_end = column - row - (columns - rows)
        mode = self.mode
        if mode in (7, 8):
            edge = last if mode == 7 else 0
            mode = 4 if sequence == edge else {7: 3, 8: 2}[mode]
        if mode == 2:
            return column > row
        if mode == 3:
            return from_end > 0
        if mode == 4:
            return not -self.before <= from_end <= self.after
        if mode == 6:
            assert self.prefix is not None
            return from_end > 0 and column >= self.prefix[sequence]
        shape = self.given.shape
        at = (*(min(index, size - 1) for index, size in zip((sequence, head), shape[:-2], strict=False)), row, column)
        return bool(self.given[at]) or (mode == 0 and not -self.before <= column - row <= self.after)


@dataclass(frozen=True)
class Problem:
    """What both directions need: arrays by (sequence, head), and what they are made of."""

    query: Array
    key: Array
    value: Array
    places: tuple[list[list[tuple[int, int]]], list[list[tuple[int, int]]]]
    heads: int
    shared: int
    bias: Array | None
    scales_bias: bool
    mask: Mask
    scale: float
    sink: Array | None

    def rows(self) -> Iterator[tuple[tuple[int, int, int], list[tuple[int, int, int]], Array, tuple[int, int, int]]]:
        """Place of each query, places of the keys that it sees, what is added to their scores, and who it is."""
        for sequence, (of_queries, of_keys) in enumerate(zip(*self.places, strict=True)):
            last = max(i for i, lists in enumerate(zip(*self.places, strict=True)) if all(lists))
            for head in range(self.heads):
                for row, place in enumerate(of_queries):
                    sizes = (len(of_queries), len(of_keys))
                    seen = [c for c in range(sizes[1]) if not self.mask.hides(sequence, last, head, row, c, *sizes)]
                    added = np.zeros(len(seen))
                    if self.bias is not None:
                        at = (min(sequence, len(self.bias) - 1), head, min(row, self.bias.shape[2] - 1))
                        added = self.bias[at][seen] * (self.scale if self.scales_bias else 1.0)
                    group = head * self.shared // self.heads
                    yield (*place, head), [(*of_keys[c], group) for c in seen], added, (sequence, head, row)


@by_schema
def npu_fusion_attention_v2(args: Arguments) -> tuple[Tensor, Tensor, Tensor, Tensor, int, int, int]:
    problem = _problem(args, args.scale)
    out = np.zeros((*problem.query.shape[:-1], problem.value.shape[-1]))
    statistics: list[tuple[float, float]] = []
    count = 0
    for at, seen, added, (_, head, _) in problem.rows():
        keys, values = (np.array([each[place] for place in seen]).reshape(-1, each.shape[-1]) for each in _kv(problem))
        extra = None if problem.sink is None else float(problem.sink[head])
        # what is added to a score is the product with one more dimension
        q, k = np.append(problem.query[at], 1.0), np.concatenate([keys, added[:, None] / args.scale], 1)
        out[at], highest, total = attend(q, k, values, args.scale, extra)
        statistics.append((highest, total))
    for of_queries, of_keys in zip(*problem.places, strict=True):
        count += args.head_num * len(of_queries) * len(of_keys)
    packed = args.input_layout == "TND"
    shape = (
        (len(args.query), args.head_num)
        if packed
        else (len(problem.places[0]), args.head_num, len(problem.places[0][0]))
    )
    maximum, total = (np.array([each[i] for each in statistics]).reshape(shape) for i in (0, 1))
    if packed and args.softmax_layout == "TND":
        maximum, total = (_by_token(each, problem) for each in (maximum, total))
    copies = [single(np.repeat(each[..., None], 8, -1)) for each in (maximum, total)]
    return like(_back(out, args.input_layout), args.query), copies[0], copies[1], args.query.new_empty(0), 0, 0, count


@by_schema
def npu_fusion_attention_grad_v2(
    args: Arguments,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None, Tensor | None, Tensor | None]:
    problem = _problem(args, args.scale_value)
    arriving = _split(wide(args.dy), args.input_layout, args.head_num)
    of_q, of_k, of_v = (np.zeros_like(each) for each in (problem.query, *_kv(problem)))
    of_bias = None if problem.bias is None else np.zeros_like(problem.bias)
    of_sink = None if problem.sink is None else np.zeros_like(problem.sink)
    for at, seen, added, (sequence, head, row) in problem.rows():
        keys, values = (np.array([each[place] for place in seen]).reshape(-1, each.shape[-1]) for each in _kv(problem))
        scores = keys @ problem.query[at] * args.scale_value + added
        powers = np.exp(scores)
        total = powers.sum() + (0.0 if problem.sink is None else np.exp(problem.sink[head]))
        if not total:
            continue
        weights = powers / total
        along = arriving[at] @ (weights @ values)
        of_scores = weights * (values @ arriving[at] - along)
        of_q[at] = of_scores @ keys * args.scale_value
        for place, grad, weight in zip(seen, of_scores, weights, strict=True):
            of_k[place] += grad * args.scale_value * problem.query[at]
            of_v[place] += weight * arriving[at]
        if of_bias is not None:
            columns = [place[1] for place in seen]
            at_bias = (min(sequence, len(of_bias) - 1), head, min(row, of_bias.shape[2] - 1))
            of_bias[at_bias][columns] += of_scores * (args.scale_value if problem.scales_bias else 1.0)
        if of_sink is not None and problem.sink is not None:
            of_sink[head] -= np.exp(problem.sink[head]) / total * along
    own, found = _own_width(args.query, args.input_layout, args.head_num), []
    for array, rope in ((of_q, args.query_rope), (of_k, args.key_rope)):
        found.append((array[..., :own], None if rope is None else like(array[..., own:][0], rope)))
    return (
        like(_back(found[0][0], args.input_layout), args.query),
        like(_back(found[1][0], args.input_layout), args.key),
        like(_back(of_v, args.input_layout), args.value),
        None if args.pse is None or of_bias is None else like(of_bias, args.pse),
        found[0][1],
        found[1][1],
        None if args.sink is None or of_sink is None else like(of_sink, args.sink),
    )


@by_schema
def npu_fusion_attention_v3(args: Arguments) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    if args.keep_prob < 1:
        raise NotImplementedError("npu_fusion_attention_v3 with dropout")
    results = npu_fusion_attention_v2(
        args.query, args.key, args.value, args.head_num, args.input_layout, pse=args.pse, atten_mask=args.atten_mask,
        scale=args.scale, pre_tokens=args.pre_tockens, next_tokens=args.next_tockens, prefix=args.prefix,
        actual_seq_qlen=_numbers(args.actual_seq_qlen), actual_seq_kvlen=_numbers(args.actual_seq_kvlen),
        sparse_mode=args.sparse_mode, softmax_layout=args.softmax_layout, sink=args.sink,
    )  # fmt: skip
    return (*results[:4], torch.tensor(0), torch.tensor(0))


@by_schema
def npu_fusion_attention_grad_v3(args: Arguments) -> tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None]:
    of_q, of_k, of_v, of_pse, _, _, of_sink = npu_fusion_attention_grad_v2(
        args.query, args.key, args.value, args.dy, args.head_num, args.input_layout, pse=args.pse,
        atten_mask=args.atten_mask, scale_value=args.scale_value, pre_tokens=args.pre_tockens,
        next_tokens=args.next_tockens, prefix=args.prefix, actual_seq_qlen=_numbers(args.actual_seq_qlen),
        actual_seq_kvlen=_numbers(args.actual_seq_kvlen), sparse_mode=args.sparse_mode, sink=args.sink,
    )  # fmt: skip
    return of_q, of_k, of_v, of_pse, of_sink


def _problem(args: Arguments, scale: float) -> Problem:
    heads, layout = args.head_num, args.input_layout
    width = _own_width(args.query, layout, heads)
    shared = args.key.shape[-1] // width if layout in ("BSH", "SBH") else args.key.shape[1 if layout == "BNSD" else -2]
    widths = ((args.query, heads), (args.key, shared), (args.value, shared))
    q, k, v = (_split(wide(x), layout, n) for x, n in widths)
    if args.query_rope is not None and args.key_rope is not None:
        q, k = np.concatenate([q, wide(args.query_rope)[None]], -1), np.concatenate([k, wide(args.key_rope)[None]], -1)
    places = []
    for array, stops in ((q, args.actual_seq_qlen), (k, args.actual_seq_kvlen)):
        if layout == "TND":
            places.append([[(0, token) for token in rows] for rows in ends_to_ranges(stops or ())])
        else:
            places.append([[(b, token) for token in range(array.shape[1])] for b in range(array.shape[0])])
    bias, extra = (None if each is None else wide(each) for each in (args.pse, args.sink))
    mask = Mask(args.atten_mask, args.sparse_mode, args.pre_tokens, args.next_tokens, args.prefix)
    return Problem(q, k, v, (places[0], places[1]), heads, shared, bias, args.pse_type == 1, mask, scale, extra)


def _own_width(query: Tensor, layout: str, heads: int) -> int:
    return query.shape[-1] // heads if layout in ("BSH", "SBH") else query.shape[-1]


def _kv(problem: Problem) -> tuple[Array, Array]:
    return problem.key, problem.value


def _split(x: Array, layout: str, heads: int) -> Array:
    """(B, S, N, D) of a layout; the packed tokens are one sequence."""
    if layout == "TND":
        return x[None]
    if layout == "BNSD":
        return np.moveaxis(x, 1, 2)
    if layout == "BSND":
        return x
    x = np.moveaxis(x, 0, 1) if layout == "SBH" else x
    return x.reshape(*x.shape[:2], heads, -1)


def _back(x: Array, layout: str) -> Array:
    if layout == "TND":
        return x[0]
    if layout == "BNSD":
        return np.moveaxis(x, 2, 1)
    if layout == "BSND":
        return x
    flat = x.reshape(*x.shape[:2], -1)
    return np.moveaxis(flat, 0, 1) if layout == "SBH" else flat


def _by_token(statistic: Array, problem: Problem) -> Array:
    """(T, N) numbers that go head by head in each sequence, token by token."""
    flat, found, start = statistic.ravel(), np.zeros_like(statistic), 0
    for rows in problem.places[0]:
        for head in range(problem.heads):
            for _, token in rows:
                found[token, head], start = flat[start], start + 1
    return found


def _numbers(lengths: Any) -> list[int] | None:
    return None if lengths is None else [int(each) for each in lengths]
