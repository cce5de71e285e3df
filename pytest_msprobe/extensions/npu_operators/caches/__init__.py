"""Golden definitions: caches of keys and values, and steps of decoding over them; and where drawn numbers may lie.

Importing its modules loads msgspec and torch.
"""

from __future__ import annotations

import torch

from pytest_msprobe.engine.replay.inputs.constraints.drawn import Constraint, DrawnArguments, split_evenly
from pytest_msprobe.engine.replay.inputs.constraints.indices import wrap
from pytest_msprobe.engine.replay.inputs.constraints.values import compressed_mask


def attended_blocks(drawn: DrawnArguments) -> None:
    """Name blocks that the caches have; masks as `compressed_mask`."""
    compressed_mask(drawn)
    cache, table = drawn.tensor(1, "key"), drawn.kwargs.get("block_table")
    if cache is not None and isinstance(table, torch.Tensor):
        wrap(table, cache.shape[0])


def _take_slots(slots: torch.Tensor | None, count: int, generator: torch.Generator) -> None:
    """Make slots distinct, in place, of so many that there are; what is left over where there are fewer is skipped."""
    if slots is None or slots.is_floating_point():
        return
    drawn = torch.full((slots.numel(),), -1)
    places = torch.randperm(count, generator=generator)[: slots.numel()]
    drawn[: len(places)] = places
    slots.copy_(drawn.view(slots.shape))


def slots_of(cache_at: int, cache: str, slots_at: int, slots: str, *, size_at: int = 1) -> Constraint:
    """Assign each token a slot of its own in a cache, whose dimension ``size_at`` is the size of a block."""

    def constraint(drawn: DrawnArguments) -> None:
        contents = drawn.tensor(cache_at, cache)
        if contents is not None:
            _take_slots(drawn.tensor(slots_at, slots), contents.shape[0] * contents.shape[size_at], drawn.generator)

    return constraint


def scattered(cache_at: int, slots_at: int) -> Constraint:
    """Assign each token a slot of its own; of keys with four dimensions each head as many in a row as it writes."""

    def constraint(drawn: DrawnArguments) -> None:
        key, cache = drawn.tensor(0, "key"), drawn.tensor(cache_at, "key_cache")
        slots = drawn.tensor(slots_at, "slot_mapping")
        if key is None or cache is None or slots is None:
            return
        if key.dim() == 4:
            _compress(drawn, key, slots, cache.shape[0] * cache.shape[1])
            return
        # the first of the two operators has caches in chunks unless it is said otherwise
        in_chunks = cache_at == 2 and drawn.kwargs.get("cache_mode", "PA_NZ") == "PA_NZ"
        _take_slots(slots, cache.shape[0] * cache.shape[2 if in_chunks else 1], drawn.generator)

    return constraint


def _compress(drawn: DrawnArguments, key: torch.Tensor, slots: torch.Tensor, count: int) -> None:
    """Map lengths into those of the sequences, and leave every head slots for what it writes."""
    sizes, offsets = drawn.kwargs.get("compress_lens"), drawn.kwargs.get("compress_seq_offsets")
    lengths = drawn.kwargs.get("seq_lens")
    if not isinstance(sizes, torch.Tensor) or not isinstance(lengths, torch.Tensor):
        return
    batch, longest, heads, _ = key.shape
    lengths.clamp_(1, longest)
    room = max(count // max(batch * heads, 1), 1)
    start = 0
    for index in range(batch * heads):
        entry, head = divmod(index, heads)
        length, size = int(lengths[entry]), int(sizes.reshape(-1)[index])
        if isinstance(offsets, torch.Tensor):
            size = min(max(size, length - room + 1, 1), length)
            flat = offsets.view(-1)
            flat[index] = min(max(int(flat[index]), 0), length - size)
            written = length - size + 1
        else:
            written = size = min(max(size, 1), length, room)
        sizes.view(-1)[index] = size
        slots[entry, head] = start
        start += written


def gathered(drawn: DrawnArguments) -> None:
    """Share out the rows among the sequences, and name blocks that the caches have."""
    cache, rows = drawn.tensor(0, "key_cache"), drawn.tensor(4, "key")
    table, lengths = drawn.tensor(2, "block_tables"), drawn.tensor(3, "seq_lens")
    if cache is None or rows is None or table is None or lengths is None:
        return
    wrap(table, cache.shape[0])
    if drawn.kwargs.get("is_seq_lens_cumsum"):
        split_evenly(rows.shape[0], lengths[1:])
        lengths[0] = 0
        lengths.copy_(lengths.cumsum(0))
    else:
        split_evenly(rows.shape[0], lengths)
    offset = drawn.kwargs.get("seq_offset")
    if isinstance(offset, torch.Tensor):
        wrap(offset, table.shape[1] * cache.shape[1])


def filled(drawn: DrawnArguments) -> None:
    """Assign each token a slot of its own in a cache of tokens, or of chunks."""
    key, cache = drawn.tensor(0, "key"), drawn.tensor(2, "key_cache")
    if key is not None and cache is not None:
        size = cache.shape[1 if cache.shape[2:] == key.shape[1:] else 2]
        _take_slots(drawn.tensor(4, "slot_indices"), cache.shape[0] * size, drawn.generator)


def attended_pages(table_at: int) -> Constraint:
    """Name blocks that the caches have, and no more keys than the blocks of a row hold."""

    def constraint(drawn: DrawnArguments) -> None:
        cache, table = drawn.tensor(1, "key_cache"), drawn.tensor(table_at, "block_table")
        if cache is not None and table is not None:
            wrap(table, cache.shape[0])
            size = cache.shape[1 if cache.shape[2] == drawn.get(3, "num_kv_heads") else 2]
            wrap(drawn.tensor(7, "context_lens"), table.shape[1] * size + 1)

    return constraint


def loaded(drawn: DrawnArguments) -> None:
    """Share out given rows among the sequences, name blocks that the caches have, and keys that their rows hold."""
    cache, rows = drawn.tensor(0, "key_cache"), drawn.kwargs.get("key")
    table, lengths = drawn.tensor(2, "block_table"), drawn.tensor(3, "context_lens")
    if cache is None or table is None or lengths is None:
        return
    wrap(table, cache.shape[0])
    wrap(drawn.kwargs.get("seq_starts"), table.shape[1] * cache.shape[1])
    wrap(lengths, table.shape[1] * cache.shape[1] + 1)
    if isinstance(rows, torch.Tensor):
        split_evenly(rows.shape[0], lengths[-len(table) :])
    if drawn.kwargs.get("cumsum"):
        lengths[: len(lengths) - len(table)] = 0
        lengths.copy_(lengths.cumsum(0))


def latent_index(drawn: DrawnArguments) -> None:
    """Assign each token of ``kv`` (B, N, S, D) a place of its own in the caches, or each block of tokens one."""
    kv, cache, index = drawn.tensor(0, "kv"), drawn.tensor(5, "k_cache"), drawn.tensor(4, "index")
    if kv is None or cache is None or index is None:
        return
    mode = drawn.kwargs.get("cache_mode", "Norm")
    if mode == "Norm":
        for row in index:
            _take_slots(row, cache.shape[2], drawn.generator)
    elif "BLK" in mode:
        _take_slots(index, cache.shape[0], drawn.generator)
        index[index > 0] *= cache.shape[1]
    else:
        _take_slots(index, cache.shape[0] * cache.shape[1], drawn.generator)


def quantized_rows(drawn: DrawnArguments) -> None:
    """Leave room for a sequence behind each index, or give each token a slot of its own in pages."""
    x, cache, index = drawn.tensor(0, "x"), drawn.tensor(3, "k_cache"), drawn.tensor(5, "indices")
    if x is None or cache is None or index is None:
        return
    if drawn.kwargs.get("cache_mode") == "page":
        _take_slots(index, cache.shape[0] * cache.shape[1], drawn.generator)
    else:
        wrap(index, cache.shape[1] - (x.shape[1] if x.dim() == 3 else 1) + 1)


def decoded(drawn: DrawnArguments) -> None:
    """Keep every sequence, and what it grows by, within the blocks that its row of the table names.

    Behind the first sampled token of a sequence that is -1, which is not its first, there is none.
    """
    table, size = drawn.tensor(5, "block_tables"), drawn.get(8, "block_size")
    if table is None or not isinstance(size, int):
        return
    accepted, sampled = drawn.kwargs.get("accepted_num"), drawn.tensor(1, "sampled_token_ids")
    growth = 2
    if isinstance(accepted, torch.Tensor) and sampled is not None:
        wrap(accepted, sampled.shape[-1])
        _end_rows(sampled, drawn.kwargs.get("spec_token"))
        growth += sampled.shape[-1]
    wrap(table, 1 << 31)
    for position, name in ((2, "input_positions"), (3, "seq_lens")):
        wrap(drawn.tensor(position, name), max(table.shape[1] * size - growth + 1, 1))


def _end_rows(sampled: torch.Tensor, spec_token: object) -> None:
    if not isinstance(spec_token, torch.Tensor):
        return
    rows = sampled.reshape(len(spec_token), -1)
    rows[:, 0].abs_()
    rows[(rows < 0).cumsum(1) > 0] = -1
    sampled.copy_(rows.reshape(sampled.shape))
