"""Caches of keys and values in blocks: tokens written to their slots, and gathered again in the order of sequences."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import torch

from pytest_msprobe.engine.replay.ops.operators import golden
from pytest_msprobe.engine.replay.ops.traits import OpInfo
from pytest_msprobe.extensions.npu_operators import caches
from pytest_msprobe.extensions.npu_operators.arguments import at_least_float32, functional, refuse
from pytest_msprobe.extensions.npu_operators.quantization.quantization import rounded

if TYPE_CHECKING:
    from torch import Tensor


def write_tokens(cache: Tensor, slots: Tensor, tokens: Tensor) -> None:
    """Write tokens (T, ...) into a cache (blocks, size, ...) in place."""
    used = slots >= 0
    places = slots[used].long()
    size = cache.shape[1]
    cache[places // size, places % size] = tokens[used].to(cache.dtype)


def write_in_chunks(cache: Tensor, slots: Tensor, tokens: Tensor) -> None:
    """Write tokens (T, W) into a cache (blocks, W / c, size, c) in place: what the device calls FRACTAL_NZ."""
    used = slots >= 0
    places = slots[used].long()
    size, chunk = cache.shape[2], cache.shape[3]
    cache[places // size, :, places % size] = tokens[used].reshape(len(places), -1, chunk).to(cache.dtype)


def as_chunks(cache: Tensor) -> Tensor:
    """Return a cache of heads, (blocks, size, N, D), as its memory is laid out in chunks: (blocks, N * D / c, size, c).

    A chunk has 32 bytes: 32 elements of int8, 16 of the floats that caches hold.
    """
    blocks, size = cache.shape[:2]
    return cache.view(blocks, -1, size, 16 if cache.is_floating_point() else 32)


def quantized_tokens(tokens: Tensor, scale: Tensor | None, offset: Tensor | None, *, divide: bool) -> Tensor:
    """Return round(tokens * scale + offset) in int8, or of a quotient; without a scale the tokens as they are."""
    if scale is None:
        return tokens
    wide, factor = at_least_float32(tokens), at_least_float32(scale)
    scaled = wide / factor if divide else wide * factor
    return rounded(scaled if offset is None else scaled + at_least_float32(offset))


@golden("NPU.npu_scatter_pa_kv_cache", OpInfo(constraint=caches.scattered(2, 4), in_place=True))
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


npu_scatter_pa_kv_cache_functional = golden(
    "NPU.npu_scatter_pa_kv_cache_functional", OpInfo(constraint=caches.scattered(2, 4))
)(functional(npu_scatter_pa_kv_cache, "key_cache", "value_cache", returns=False))


@golden("NPU.npu_scatter_pa_cache", OpInfo(constraint=caches.scattered(5, 1), in_place=True))
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


@golden("NPU.npu_gather_pa_kv_cache", OpInfo(constraint=caches.gathered, in_place=True))
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
    for name, cache, destination in (("key_cache", key_cache, key), ("value_cache", value_cache, value)):
        refuse(
            "npu_gather_pa_kv_cache",
            **{f"{name} in chunks": None if cache.shape[2:] == destination.shape[1:] else cache},
        )
    counts = [int(number) for number in seq_lens]
    counts = [end - begin for begin, end in pairwise(counts)] if is_seq_lens_cumsum else counts
    blocks, size = key_cache.shape[:2]
    for destination, cache in ((key, key_cache), (value, value_cache)):
        rows = []
        for row, count in enumerate(counts):
            place = torch.arange(count, device=cache.device)
            of_table = place // size + (0 if seq_offset is None else int(seq_offset[row]) // size)
            named = of_table < block_tables.shape[1]
            block = block_tables[row].long()[of_table.clamp(max=block_tables.shape[1] - 1)]
            exists = named & (block >= 0) & (block < blocks)
            tokens = cache[block.clamp(0, blocks - 1), place % size]
            rows.append(tokens.masked_fill(~exists.view(-1, *[1] * (tokens.dim() - 1)), 0))
        gathered = torch.cat(rows)[: len(destination)]
        destination[: len(gathered)] = gathered


npu_gather_pa_kv_cache_functional = golden("NPU.npu_gather_pa_kv_cache_functional", OpInfo(constraint=caches.gathered))(
    functional(npu_gather_pa_kv_cache, "key", "value", returns=False)
)


@golden("NPU.npu_advance_step_flashattn", OpInfo(constraint=caches.decoded, in_place=True))
def npu_advance_step_flashattn(
    input_tokens: Tensor, sampled_token_ids: Tensor, input_positions: Tensor, seq_lens: Tensor,
    slot_mapping: Tensor, block_tables: Tensor, num_seqs: int, num_queries: int, block_size: int,
    *, spec_token: Tensor | None = None, accepted_num: Tensor | None = None,
) -> None:  # fmt: skip
    """Move every sequence on by what was sampled, in place, as vLLM's ``advance_step_flashattn`` does.

    Of each of the first ``num_queries`` sequences the sampled token is the next one, its position is the length, which
    grows by one, and its slot is that of the position in the block that its row of ``block_tables`` names. Of the
    others token and position become 0 and the slot -1.

    With ``spec_token`` (num_seqs, n) all but the block tables hold 1 + n numbers for each sequence: the last sampled
    token that is not -1, then ``spec_token``; positions move on by 1 + ``accepted_num``, lengths are one more, and
    slots are those of the positions (op-plugin's documentation). Raises NotImplementedError for one of both arguments
    alone.
    """
    api = "npu_advance_step_flashattn"
    if spec_token is None:
        refuse(api, **{"accepted_num alone": accepted_num})
        count = num_queries
        input_tokens[:count] = sampled_token_ids.reshape(-1)[:count]
        input_positions.reshape(-1)[:count] = seq_lens[:count]
        seq_lens[:count] += 1
        slot_mapping[:count] = _slots(input_positions.reshape(-1)[:count].unsqueeze(1), block_tables, block_size)[:, 0]
        input_tokens[count:num_seqs] = 0
        input_positions.reshape(-1)[count:num_seqs] = 0
        slot_mapping[count:num_seqs] = -1
        return
    if accepted_num is None:
        raise NotImplementedError(f"{api} has no golden definition with spec_token alone")
    by_sequence = (num_seqs, 1 + spec_token.shape[1])
    sampled = sampled_token_ids.reshape(by_sequence)
    # how many tokens are before the first -1
    valid = (sampled >= 0).long().cumprod(1).sum(1)
    tokens = input_tokens.view(by_sequence)
    tokens[:, 0] = sampled.gather(1, (valid - 1).clamp(min=0).unsqueeze(1))[:, 0]
    tokens[:, 1:] = spec_token
    positions = input_positions.view(by_sequence)
    positions += 1 + accepted_num.unsqueeze(1)
    seq_lens.view(by_sequence).copy_(positions + 1)
    slot_mapping.view(by_sequence).copy_(_slots(positions, block_tables, block_size))


def _slots(positions: Tensor, block_tables: Tensor, block_size: int) -> Tensor:
    """Return the slots of positions (sequences, n)."""
    blocks = block_tables[: len(positions)].gather(1, (positions // block_size).to(block_tables.dtype).long())
    return blocks * block_size + positions % block_size
