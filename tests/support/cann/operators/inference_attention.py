"""Attention of inference, one score at a time, in numpy: what the simulated card computes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tests.support.cann.operators.by_schema import Arguments, by_schema

Array = np.ndarray[Any, np.dtype[np.float64]]


@by_schema
def npu_prompt_flash_attention(args: Arguments) -> Tensor:
    case = Case(
        args.query, args.key, args.value, args.input_layout, args.num_heads, args.num_key_value_heads or args.num_heads,
        args.scale_value, args.atten_mask, args.sparse_mode, args.pre_tokens, args.next_tokens, args.actual_seq_lengths,
        args.actual_seq_lengths_kv, pse=args.pse_shift, quant_scale=args.quant_scale2, quant_offset=args.quant_offset2,
    )  # fmt: skip
    return case.attended()[0]


@by_schema
def npu_incre_flash_attention(args: Arguments) -> Tensor:
    case = Case(
        args.query, args.key, args.value, args.input_layout, args.num_heads, args.num_key_value_heads or args.num_heads,
        args.scale_value, args.atten_mask, lengths_kv=args.actual_seq_lengths, pse=args.pse_shift,
        table=args.block_table, padding_kv=args.kv_padding_size,
        of_key=halves(args.antiquant_scale, args.antiquant_offset, 0, 0),
        of_value=halves(args.antiquant_scale, args.antiquant_offset, 1, 0), quant_scale=args.quant_scale2,
        quant_offset=args.quant_offset2,
    )  # fmt: skip
    return case.attended()[0]


@by_schema
def npu_fused_infer_attention_score(args: Arguments) -> tuple[Tensor, Tensor | None]:
    of_key = halves(args.antiquant_scale, args.antiquant_offset, 0, args.antiquant_mode)
    of_value = halves(args.antiquant_scale, args.antiquant_offset, 1, args.antiquant_mode)
    if args.key_antiquant_scale is not None and args.value_antiquant_scale is not None:
        of_key = (args.key_antiquant_scale, args.key_antiquant_offset, args.key_antiquant_mode)
        of_value = (args.value_antiquant_scale, args.value_antiquant_offset, args.value_antiquant_mode)
    prefix = None
    if args.key_shared_prefix is not None and args.value_shared_prefix is not None:
        prefix = (args.key_shared_prefix, args.value_shared_prefix, (args.actual_shared_prefix_len or [1 << 30])[0])
    case = Case(
        args.query, args.key, args.value, args.input_layout, args.num_heads, args.num_key_value_heads or args.num_heads,
        args.scale, args.atten_mask, args.sparse_mode, args.pre_tokens, args.next_tokens, args.actual_seq_lengths,
        args.actual_seq_lengths_kv, pse=args.pse_shift, query_rope=args.query_rope, key_rope=args.key_rope,
        table=args.block_table, padding=args.query_padding_size, padding_kv=args.kv_padding_size, prefix=prefix,
        of_key=of_key, of_value=of_value, quant_scale=args.quant_scale2, quant_offset=args.quant_offset2,
    )  # fmt: skip
    out, statistic = case.attended()
    return out, statistic if args.softmax_lse_flag else None


@by_schema
def npu_fused_infer_attention_score_v2(args: Arguments) -> tuple[Tensor, Tensor | None]:
    case = Case(
        args.query,
        args.key,
        args.value,
        args.input_layout,
        args.num_query_heads,
        args.num_key_value_heads or args.num_query_heads,
        args.softmax_scale,
        args.atten_mask,
        args.sparse_mode,
        args.pre_tokens,
        args.next_tokens,
        args.actual_seq_qlen,
        args.actual_seq_kvlen,
        pse=args.pse_shift,
        query_rope=args.query_rope,
        key_rope=args.key_rope,
        table=args.block_table,
        sink=args.learnable_sink,
        of_key=None
        if args.dequant_scale_key is None
        else (args.dequant_scale_key, args.dequant_offset_key, args.key_quant_mode),
        of_value=None
        if args.dequant_scale_value is None
        else (args.dequant_scale_value, args.dequant_offset_value, args.value_quant_mode),
        quant_scale=args.quant_scale_out,
        quant_offset=args.quant_offset_out,
    )
    out, statistic = case.attended()
    return out, statistic if args.return_softmax_lse else None


def halves(scale: Tensor | None, offset: Tensor | None, half: int, mode: int) -> Parameters | None:
    return None if scale is None else (scale[half], None if offset is None else offset[half], mode)


Parameters = tuple[Tensor, Tensor | None, int]


def numbers(x: Tensor) -> Array:
    return x.double().numpy()


@dataclass
class Case:
    query: Tensor
    key: Tensor
    value: Tensor
    layout: str
    heads: int
    heads_kv: int
    scale: float
    mask: Tensor | None
    mode: int = 1
    before: int = 1 << 31
    after: int = 1 << 31
    lengths: Sequence[int] | None = None
    lengths_kv: Sequence[int] | None = None
    pse: Tensor | None = None
    query_rope: Tensor | None = None
    key_rope: Tensor | None = None
    table: Tensor | None = None
    padding: Tensor | None = None
    padding_kv: Tensor | None = None
    prefix: tuple[Tensor, Tensor, int] | None = None
    of_key: Parameters | None = None
    of_value: Parameters | None = None
    sink: Tensor | None = None
    quant_scale: Tensor | None = None
    quant_offset: Tensor | None = None

    @property
    def packed(self) -> bool:
        return self.layout.partition("_")[0] in ("TND", "NTD")

    def sequences(self, x: Tensor, heads: int, ends: Sequence[int] | None) -> list[Array]:
        """Arrays (S, N, D), one for each sequence."""
        layout = self.layout.partition("_")[0]
        a = numbers(x)
        if layout in ("TND", "NTD"):
            a = a if layout == "TND" else a.swapaxes(0, 1)
            assert ends is not None
            return [a[start:end] for start, end in zip([0, *ends], ends, strict=False)]
        if layout == "NSD":
            return [a.swapaxes(0, 1)]
        if layout == "BSH":
            a = a.reshape(*a.shape[:2], heads, -1)
        return list(a.swapaxes(1, 2) if layout == "BNSD" else a)

    def own_keys(self, index: int) -> tuple[Array, Array, int]:
        """Keys, values (L, N, D) of a sequence, and the column of its first key."""
        if self.table is not None:
            assert self.lengths_kv is not None
            length = int(self.lengths_kv[index if len(self.lengths_kv) > 1 else 0])
            found = [
                np.stack([self.in_block(cache, index, token) for token in range(length)])
                for cache in (self.key, self.value, self.key_rope)
                if cache is not None
            ]
            start = 0
        else:
            found = [
                self.sequences(x, self.heads_kv, self.lengths_kv)[index]
                for x in (self.key, self.value, self.key_rope)
                if x is not None
            ]
            start, end = 0, len(found[0])
            if not self.packed and self.lengths_kv:
                length = int(self.lengths_kv[index if len(self.lengths_kv) > 1 else 0])
                start = 0 if self.padding_kv is None else end - max(int(self.padding_kv), 0) - length
                found = [x[start : start + length] for x in found]
        k, v = found[:2]
        k, v = self.as_numbers(k, self.of_key, index, start), self.as_numbers(v, self.of_value, index, start)
        return np.concatenate([k, *found[2:]], -1), v, start

    def in_block(self, cache: Tensor, index: int, token: int) -> Array:
        """One token (N, D) of a sequence, where the table says that it is."""
        assert self.table is not None
        size = cache.shape[1] if cache.dim() == 3 else cache.shape[2] if cache.dim() == 4 else cache.shape[3]
        block, place = numbers(cache[int(self.table[index, token // size])]), token % size
        if cache.dim() == 3:
            return block[place].reshape(self.heads_kv, -1)
        return block[:, place] if cache.dim() == 4 else block[:, :, place].reshape(self.heads_kv, -1)

    def as_numbers(self, x: Array, parameters: Parameters | None, index: int, start: int) -> Array:
        if parameters is None:
            return x
        scale, offset, mode = parameters
        out = np.empty_like(x)
        for token, head, d in np.ndindex(*x.shape):
            at = (index, start + token, head, d)
            shift = 0.0 if offset is None else self.parameter(numbers(offset), mode, *at)
            out[token, head, d] = (x[token, head, d] + shift) * self.parameter(numbers(scale), mode, *at)
        return out

    def parameter(self, p: Array, mode: int, index: int, token: int, head: int, d: int) -> float:
        if mode == 0:
            return float(p.flat[0] if p.size == 1 else p.reshape(self.heads_kv, -1)[head, d])
        if mode == 1:
            return float(p.reshape(-1, p.shape[-1])[index, token])
        if mode == 2:
            return float(p.flat[head])
        if mode == 3:
            return float(p[index, head, token])
        assert self.table is not None
        block, place = divmod(token, p.shape[-1])
        row = p[int(self.table[index, block])]
        return float(row[place] if mode == 4 else row[head, place])

    def hides(self, index: int, row: int, column: int, rows: int, columns: int, first: tuple[int, int]) -> bool:
        if self.mask is None:
            return False
        mode, single = self.mode, rows == 1 and not self.packed and self.query_rope is None
        compressed = self.mask.shape[-2:] == (2048, 2048)
        if single and not compressed:
            flat = self.mask.reshape(-1, self.mask.shape[-1])
            return bool(flat[index if len(flat) > 1 else 0, column + first[1]])
        by_row = column - row
        by_end = by_row - (columns - rows)
        if mode == 2:
            return by_row > 0
        if mode == 3:
            return by_end > 0
        if mode == 4:
            return by_end > self.after or by_end < -self.before
        mask = self.mask if self.mask.dim() == 2 else self.mask[index if len(self.mask) > 1 else 0]
        given = bool(mask.reshape(*mask.shape[-2:])[row + first[0], column + first[1]])
        padded = self.padding is not None or self.padding_kv is not None
        return given or (mode == 0 and not padded and not -self.before <= by_row <= self.after)

    def attended(self) -> tuple[Tensor, Tensor]:
        queries = self.sequences(self.query, self.heads, self.lengths)
        if self.query_rope is not None:
            ropes = self.sequences(self.query_rope, self.heads, self.lengths)
            queries = [np.concatenate(pair, -1) for pair in zip(queries, ropes, strict=True)]
        outs, statistics = [], []
        for index, q in enumerate(queries):
            k, v, start = self.own_keys(index)
            if self.prefix is not None:
                head_k, head_v = (self.sequences(x, self.heads_kv, None)[0] for x in self.prefix[:2])
                keep = self.prefix[2]
                k, v = np.concatenate([head_k[:keep], k]), np.concatenate([head_v[:keep], v])
            rows, first = len(q), 0
            if self.lengths and not self.packed and len(q) > 1:
                rows = int(self.lengths[index if len(self.lengths) > 1 else 0])
                first = 0 if self.padding is None else len(q) - max(int(self.padding), 0) - rows
            out = np.zeros((len(q), self.heads, v.shape[-1]))
            statistic = np.full((len(q), self.heads), np.inf)
            for row, head in np.ndindex(rows, self.heads):
                kv = head * self.heads_kv // self.heads
                seen = [c for c in range(len(k)) if not self.hides(index, row, c, rows, len(k), (first, start))]
                scores = [self.scale * float(q[first + row, head] @ k[c, kv]) for c in seen]
                if self.pse is not None:
                    of_entry = numbers(self.pse[index if len(self.pse) > 1 else 0])
                    scores = [s + of_entry[head, first + row, start + c] for s, c in zip(scores, seen, strict=True)]
                if self.sink is not None:
                    scores = [*scores, float(self.sink[head])]
                if scores:
                    weights = np.exp(np.array(scores) - max(scores))
                    statistic[first + row, head] = max(scores) + np.log(weights.sum())
                    found = weights[: len(seen)] @ v[seen, kv] / weights.sum()
                    out[first + row, head] = self.rounded(found, head)
            outs.append(out)
            statistics.append(statistic)
        return self.laid_out(outs), self.laid_out_statistic(statistics)

    def rounded(self, row: Array, head: int) -> Array:
        if self.quant_scale is None:
            return row
        parameters = [numbers(p) for p in (self.quant_scale, self.quant_offset) if p is not None]
        of_head = [p.flat[0] if p.size == 1 else p.reshape(self.heads, -1)[head] for p in parameters]
        shifted = row * of_head[0] + (of_head[1] if len(of_head) > 1 else 0.0)
        return np.asarray(np.clip(np.rint(shifted), -128, 127))

    def laid_out(self, outs: list[Array]) -> Tensor:
        layout = self.layout.rpartition("_")[2]
        a = np.concatenate(outs) if self.packed else np.stack(outs)
        if layout == "BSH":
            a = a.reshape(*a.shape[:2], -1)
        order = {"BNSD": (0, 2, 1, 3), "NBSD": (2, 0, 1, 3), "NTD": (1, 0, 2), "NSD": (0, 2, 1, 3)}.get(layout)
        a = a if order is None else a.transpose(order)
        dtype = self.query.dtype if self.quant_scale is None else torch.int8
        return torch.from_numpy(np.ascontiguousarray(a[0] if layout == "NSD" else a)).to(dtype)

    def laid_out_statistic(self, statistics: list[Array]) -> Tensor:
        a = np.concatenate(statistics) if self.packed else np.stack(statistics).swapaxes(1, 2)
        return torch.from_numpy(np.ascontiguousarray(a[..., None])).float()
