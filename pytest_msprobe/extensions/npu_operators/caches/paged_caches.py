"""Caches of keys and values in blocks: tokens written to their slots, and gathered again in the order of sequences."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import torch

from pytest_msprobe.extensions.npu_operators.caches.cache_slots import write_in_chunks, write_tokens
from pytest_msprobe.extensions.npu_operators.reference_arguments import refuse
from pytest_msprobe.extensions.npu_operators.twins import functional

if TYPE_CHECKING:
    from torch import Tensor


def npu_scatter_pa_kv_cache(
    key: Tensor, value: Tensor, key_cache: Tensor, value_cache: Tensor, slot_mapping: Tensor,
    *, compress_lens: Tensor | None = None, compress_seq_offsets: Tensor | None = None,
    seq_lens: Tensor | None = None, cache_mode: str | None = "PA_NZ",
) -> None:  # fmt: skip
    """Write keys and values (T, N, D) in place to the slots of their caches that ``slot_mapping`` (T) names.

    ``cache_mode`` "PA_NZ": caches (blocks, N * D / c, tokens, c); "Norm" or None: (blocks, tokens, N, D). Keys and
    values (B, S, N, D) are written head by head, as :func:`npu_scatter_pa_cache` says. Raises NotImplementedError for
    another mode, ValueError as :func:`npu_scatter_pa_cache`.
    """
    api = "npu_scatter_pa_kv_cache"
    refuse(api, cache_mode=None if cache_mode in (None, "Norm", "PA_NZ") else cache_mode)
    for tokens, cache in ((key, key_cache), (value, value_cache)):
        if tokens.dim() == 4:
            _write_by_head(api, tokens, cache, slot_mapping, compress_lens, compress_seq_offsets, seq_lens)
        else:
            refuse(api, **{f"compress_lens of {tokens.dim()} dimensions": compress_lens})
            write = write_in_chunks if cache_mode == "PA_NZ" else write_tokens
            write(cache, slot_mapping, tokens)


npu_scatter_pa_kv_cache_functional = functional(npu_scatter_pa_kv_cache, "key_cache", "value_cache", returns=False)


def npu_scatter_pa_cache(
    key: Tensor,
    slot_mapping: Tensor,
    *,
    compress_lens: Tensor | None = None,
    compress_seq_offsets: Tensor | None = None,
    seq_lens: Tensor | None = None,
    key_cache: Tensor,
) -> Tensor:
    """Write keys (T, N, D) to the slots of ``key_cache`` (blocks, tokens, N, D) in place, and return it.

    Keys (B, S, N, D) go into a cache (blocks, tokens, 1, D) head by head, each to consecutive slots from that of
    ``slot_mapping`` (B, N) on. With l of ``compress_lens``, L of ``seq_lens`` and o of ``compress_seq_offsets``, that
    are the tokens before o, the mean of the l tokens from o on, and the others up to L; without offsets, the last l.

    Raises ValueError where keys have four dimensions and their lengths are missing, or a mean is over nothing.
    """
    if key.dim() == 4:
        api = "npu_scatter_pa_cache"
        _write_by_head(api, key, key_cache, slot_mapping, compress_lens, compress_seq_offsets, seq_lens)
    else:
        refuse("npu_scatter_pa_cache", **{"compress_lens of three dimensions": compress_lens})
        write_tokens(key_cache, slot_mapping, key)
    return key_cache


def _write_by_head(
    api: str,
    tokens: Tensor,
    cache: Tensor,
    slots: Tensor,
    compressed: Tensor | None,
    offsets: Tensor | None,
    lengths: Tensor | None,
) -> None:
    if compressed is None or lengths is None:
        raise ValueError(f"{api} of keys with four dimensions needs compress_lens and seq_lens")
    batch, _, heads, _ = tokens.shape
    for index in range(batch * heads):
        entry, head = divmod(index, heads)
        start, count, length = int(slots[entry, head]), int(compressed.reshape(-1)[index]), int(lengths[entry])
        own = tokens[entry, :length, head]
        if offsets is None:
            written = own[length - count :]
        else:
            offset = int(offsets.reshape(-1)[index])
            if count < 1:
                raise ValueError(f"compress_lens of {api} is {count} for head {head} of batch entry {entry}")
            mean = own[offset : offset + count].mean(0, keepdim=True)
            written = torch.cat((own[:offset], mean, own[offset + count :]))
        places = torch.arange(start, start + len(written), device=cache.device)
        write_tokens(cache, places if start >= 0 else places.fill_(-1), written.unsqueeze(1))


def npu_gather_pa_kv_cache(
    key_cache: Tensor,
    value_cache: Tensor,
    block_tables: Tensor,
    seq_lens: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    seq_offset: Tensor | None = None,
    is_seq_lens_cumsum: bool = False,
) -> None:
    """Write to ``key`` and ``value`` (T, N, D), in place, the tokens of all sequences, one sequence after the other.

    Sequence i has ``seq_lens[i]`` tokens, or, of B + 1 ``is_seq_lens_cumsum``, those between two ends. They lie in
    the blocks of caches (blocks, tokens, N, D) that row i of ``block_tables`` names, from block ``seq_offset[i]`` //
    tokens of it on; where it names none, they are 0. Raises NotImplementedError for caches in chunks (FRACTAL_NZ):
    no argument says that they are.
    """
    for name, cache, found in (("key_cache", key_cache, key), ("value_cache", value_cache, value)):
        refuse("npu_gather_pa_kv_cache", **{f"{name} in chunks": None if cache.shape[2:] == found.shape[1:] else cache})
    counts = [int(number) for number in seq_lens]
    counts = [end - begin for begin, end in pairwise(counts)] if is_seq_lens_cumsum else counts
    blocks, size = key_cache.shape[:2]
    for found, cache in ((key, key_cache), (value, value_cache)):
        rows = []
        for row, count in enumerate(counts):
            place = torch.arange(count, device=cache.device)
            of_table = place // size + (0 if seq_offset is None else int(seq_offset[row]) // size)
            named = of_table < block_tables.shape[1]
            block = block_tables[row].long()[of_table.clamp(max=block_tables.shape[1] - 1)]
            exists = named & (block >= 0) & (block < blocks)
            tokens = cache[block.clamp(0, blocks - 1), place % size]
            rows.append(tokens.masked_fill(~exists.view(-1, *[1] * (tokens.dim() - 1)), 0))
        gathered = torch.cat(rows)[: len(found)]
        found[: len(gathered)] = gathered


npu_gather_pa_kv_cache_functional = functional(npu_gather_pa_kv_cache, "key", "value", returns=False)
