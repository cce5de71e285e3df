"""Caches of keys and values in blocks, token by token, and what ATB does with them."""

from __future__ import annotations

import torch
from torch import Tensor

from tests.support.cann.operators.by_schema import Arguments, by_schema


def wide(x: Tensor) -> Tensor:
    return x.to(torch.float64)


def int8(x: Tensor) -> Tensor:
    return x.round().clamp(-128, 127).to(torch.int8)


def put(cache: Tensor, slot: int, token: Tensor) -> None:
    """Write a token (N, D) to a slot of a cache (blocks, tokens, N, D)."""
    if slot >= 0:
        cache[slot // cache.shape[1], slot % cache.shape[1]] = token.to(cache.dtype)


def put_in_chunks(cache: Tensor, slot: int, token: Tensor, size: int, chunk: int) -> None:
    """Write a token of W elements to a slot of a cache whose memory is (blocks, W / chunk, size, chunk)."""
    if slot < 0:
        return
    memory, flat = cache.view(-1), token.reshape(-1).to(cache.dtype)
    block, place = divmod(slot, size)
    start = block * len(flat) * size
    for part in range(len(flat) // chunk):
        first = start + (part * size + place) * chunk
        memory[first : first + chunk] = flat[part * chunk : (part + 1) * chunk]


def chunk_of(cache: Tensor) -> int:
    return 32 // cache.element_size()


@by_schema
def npu_scatter_pa_kv_cache(args: Arguments) -> None:
    for tokens, cache in ((args.key, args.key_cache), (args.value, args.value_cache)):
        if tokens.dim() == 3 and args.cache_mode == "PA_NZ":
            for slot, token in zip(args.slot_mapping.tolist(), tokens, strict=True):
                put_in_chunks(cache, slot, token, cache.shape[2], cache.shape[3])
        else:
            scattered(tokens, cache, args.slot_mapping, args.compress_lens, args.compress_seq_offsets, args.seq_lens)


def scattered(
    tokens: Tensor,
    cache: Tensor,
    slots: Tensor,
    compressed: Tensor | None,
    offsets: Tensor | None,
    lengths: Tensor | None,
) -> None:
    if compressed is None or lengths is None:
        for slot, token in zip(slots.tolist(), tokens, strict=True):
            put(cache, slot, token)
        return
    for b in range(tokens.shape[0]):
        for n in range(tokens.shape[2]):
            at = b * tokens.shape[2] + n
            count, length, slot = int(compressed.flatten()[at]), int(lengths[b]), int(slots[b, n])
            start = length - count if offsets is None else int(offsets[at])
            sequence = [wide(tokens[b, s, n]) for s in range(length)]
            if offsets is None:
                kept = sequence[start:]
            else:
                mean = sum(sequence[start : start + count], torch.zeros_like(sequence[0])) / count
                kept = [*sequence[:start], mean, *sequence[start + count :]]
            for token in kept:
                put(cache, slot, token.unsqueeze(0))
                slot += 1


@by_schema
def npu_scatter_pa_kv_cache_functional(args: Arguments) -> tuple[Tensor, Tensor]:
    caches = {"key_cache": args.key_cache.clone(), "value_cache": args.value_cache.clone()}
    npu_scatter_pa_kv_cache(**vars(args) | caches)
    return caches["key_cache"], caches["value_cache"]


@by_schema
def npu_scatter_pa_cache(args: Arguments) -> Tensor:
    scattered(args.key, args.key_cache, args.slot_mapping, args.compress_lens, args.compress_seq_offsets, args.seq_lens)
    return args.key_cache


@by_schema
def npu_gather_pa_kv_cache(args: Arguments) -> None:
    counts = args.seq_lens.diff().tolist() if args.is_seq_lens_cumsum else args.seq_lens.tolist()
    size, row = args.key_cache.shape[1], 0
    for sequence, count in enumerate(counts):
        first = 0 if args.seq_offset is None else int(args.seq_offset[sequence]) // size
        for token in range(count):
            column = first + token // size
            block = int(args.block_tables[sequence, column]) if column < args.block_tables.shape[1] else -1
            known = 0 <= block < len(args.key_cache)
            args.key[row] = args.key_cache[block, token % size] if known else 0
            args.value[row] = args.value_cache[block, token % size] if known else 0
            row += 1


@by_schema
def npu_gather_pa_kv_cache_functional(args: Arguments) -> tuple[Tensor, Tensor]:
    found = args.key.clone(), args.value.clone()
    npu_gather_pa_kv_cache(
        args.key_cache, args.value_cache, args.block_tables, args.seq_lens, *found, seq_offset=args.seq_offset,
        is_seq_lens_cumsum=args.is_seq_lens_cumsum,
    )  # fmt: skip
    return found


@by_schema
def npu_advance_step_flashattn(args: Arguments) -> None:
    each = 1 if args.spec_token is None else 1 + args.spec_token.shape[1]
    for at in range(args.num_seqs * each):
        i, j = divmod(at, each)
        if i >= args.num_queries:
            args.input_tokens[at], args.input_positions[at], args.slot_mapping[at] = 0, 0, -1
            continue
        if args.spec_token is None or args.accepted_num is None:
            args.input_tokens[at], position = args.sampled_token_ids[i, 0], int(args.seq_lens[at])
        else:
            sampled = [token for token in args.sampled_token_ids[i].tolist() if token >= 0]
            args.input_tokens[at] = sampled[-1] if j == 0 else args.spec_token[i, j - 1]
            position = int(args.input_positions[at]) + 1 + int(args.accepted_num[i])
        args.input_positions[at], args.seq_lens[at] = position, position + 1
        args.slot_mapping[at] = (
            int(args.block_tables[i, position // args.block_size]) * args.block_size + position % args.block_size
        )


def _npu_reshape_and_cache(
    key: Tensor, value: Tensor, key_cache: Tensor, value_cache: Tensor, slot_indices: Tensor
) -> None:
    for tokens, cache in ((key, key_cache), (value, value_cache)):
        for slot, token in zip(slot_indices.tolist(), tokens, strict=True):
            if cache.shape[-2:] == token.shape:
                put(cache, slot, token)
            else:
                put_in_chunks(cache, slot, token, cache.shape[2], cache.shape[3])


def _npu_paged_attention(
    query: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    num_kv_heads: int,
    num_heads: int,
    scale_value: float,
    block_table: Tensor,
    context_lens: Tensor,
    out: Tensor,
    workspace: Tensor | None = None,
) -> None:
    is_in_chunks = key_cache.shape[2] != num_kv_heads
    for row, length in enumerate(context_lens.tolist()):
        places = [(int(block_table[row, i // 4]), i % 4) for i in range(length)]
        for head in range(num_heads):
            group = head * num_kv_heads // num_heads
            keys, values = (
                torch.stack(
                    [
                        wide(cache[block, :, place].reshape(num_kv_heads, -1)[group])
                        if is_in_chunks
                        else wide(cache[block, place, group])
                        for block, place in places
                    ]
                )
                for cache in (key_cache, value_cache)
            )
            out[row, head] = ((keys @ wide(query[row, head])) * scale_value).softmax(0) @ values


def _npu_rotary_embedding(
    positions: Tensor, query: Tensor, key: Tensor, head_size: int, cos_sin_cache: Tensor, is_neox_style: bool
) -> None:
    half = head_size // 2
    for given in (query, key):
        old = wide(given.clone()).view(len(positions), -1, head_size)
        new = given.view(old.shape)
        for token, position in enumerate(positions.tolist()):
            for i in range(half):
                cos, sin = (float(cos_sin_cache[position, at]) for at in (i, i + half))
                a, b = (i, i + half) if is_neox_style else (2 * i, 2 * i + 1)
                new[token, :, a] = old[token, :, a] * cos - old[token, :, b] * sin
                new[token, :, b] = old[token, :, a] * sin + old[token, :, b] * cos
