"""Constraints on drawn lengths, pages and selected keys of sparse attention: within what there is, and each once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch

from pytest_msprobe.engine.replay.inputs.constraints.drawn import Constraint, DrawnArguments, split_evenly
from pytest_msprobe.engine.replay.inputs.constraints.indices import wrap

# Arguments that a schema has as keywords only have no position.
_NOWHERE = 99


@dataclass(frozen=True, slots=True)
class Selecting:
    """Arguments of an operator that select the keys a query sees: their positions and their names.

    ``query`` and ``key`` are positions. ``lengths`` of queries and keys, ``layouts`` and ``mode`` are names, with their
    positions where they have one. ``chosen`` is where the selected blocks are and ``size`` where it is how many keys
    each has; ``layout`` is that of an operator which has no argument for it.
    """

    query: int = 0
    key: int = 1
    lengths: tuple[tuple[int, str], tuple[int, str]] = (
        (_NOWHERE, "actual_seq_lengths_query"),
        (_NOWHERE, "actual_seq_lengths_kv"),
    )
    layouts: tuple[tuple[int, str], tuple[int, str]] = ((_NOWHERE, "layout_query"), (_NOWHERE, "layout_kv"))
    layout: str = "BSND"
    mode: tuple[int, str] | None = (_NOWHERE, "sparse_mode")
    chosen: tuple[int, str] | None = None
    size: tuple[int, str] | None = None


def selected_keys(where: Selecting) -> Constraint:
    """Map lengths and pages into range, and select each block of keys at most once, -1 behind the last."""

    def constraint(drawn: DrawnArguments) -> None:
        query, key = drawn.tensor(where.query, "query"), drawn.tensor(where.key, "key")
        if query is None or key is None:
            return
        of_queries, of_keys = _mended_lengths(drawn, where, query, key)
        chosen = None if where.chosen is None else drawn.tensor(*where.chosen)
        if chosen is None or len(of_queries) != len(of_keys):
            return
        mode = 0 if where.mode is None else drawn.get(*where.mode)
        size = 1 if where.size is None else drawn.get(*where.size)
        limits = [
            [keys if mode == 0 else max(0, min(keys, keys - queries + row + 1)) for row in range(queries)]
            for queries, keys in zip(of_queries, of_keys, strict=True)
        ]
        packed = _layouts(drawn, where)[0] == "TND"
        rows = torch.zeros(len(chosen) if packed else chosen.shape[:2].numel(), dtype=torch.long)
        for sequence, of_rows in enumerate(limits):
            start = sum(map(len, limits[:sequence])) if packed else sequence * chosen.shape[1]
            rows[start : start + len(of_rows)] = torch.tensor(of_rows, dtype=torch.long)[: len(rows) - start]
        _select(chosen, rows if packed else rows.view(chosen.shape[:2]), size or 1, drawn.generator)

    return constraint


def in_turn(*constraints: Constraint) -> Constraint:
    """Return what mends the drawn arguments as each of these does."""

    def constraint(drawn: DrawnArguments) -> None:
        for each in constraints:
            each(drawn)

    return constraint


def decoded_blocks(drawn: DrawnArguments) -> None:
    """Map pages into range and select each block of a sequence at most once, for one query of each sequence."""
    pages(drawn)
    chosen, size = drawn.tensor(3, "topk_indices"), drawn.get(7, "select_block_size")
    lengths = drawn.kwargs.get("actual_seq_kvlen")
    if chosen is not None and lengths and isinstance(size, int) and len(lengths) == len(chosen):
        _select(chosen, torch.tensor([int(length) for length in lengths]), size, drawn.generator)


def pages(drawn: DrawnArguments) -> None:
    """Map the pages of sequences into the cache that the key, or the input, is."""
    cache = drawn.tensor(1, "key")
    cache = drawn.tensor(0, "input") if cache is None or cache.dim() < 3 else cache
    table = drawn.kwargs.get("block_table")
    if cache is not None and isinstance(table, torch.Tensor):
        wrap(table, cache.shape[0])


def compressed_slots(drawn: DrawnArguments) -> None:
    """Map pages into the cache that the input is, and write to each slot at most once."""
    source, slots, cache = drawn.tensor(0, "input"), drawn.tensor(2, "slot_mapping"), drawn.kwargs.get("cache")
    table = drawn.kwargs.get("block_table")
    if source is not None and isinstance(table, torch.Tensor):
        wrap(table, source.shape[0])
    if slots is not None and isinstance(cache, torch.Tensor) and slots.numel() <= len(cache):
        slots.copy_(torch.randperm(len(cache), generator=drawn.generator)[: slots.numel()].view_as(slots))


def quantized_cache(where: Selecting) -> Constraint:
    """Draw as `selected_keys`, and make the bytes of a quantized cache those of ropes and of scales."""
    select = selected_keys(where)

    def constraint(drawn: DrawnArguments) -> None:
        select(drawn)
        query, rope = drawn.tensor(0, "query"), drawn.kwargs.get("rope_head_dim", 64)
        for cache in (drawn.tensor(1, "key"), drawn.tensor(2, "value")):
            if query is None or cache is None or cache.dtype is not torch.int8 or query.element_size() != 2:
                continue
            start = query.shape[-1] - rope
            end = start + 2 * rope
            shape = cache.shape[:-1]
            ropes = torch.randn(*shape, rope, generator=drawn.generator).to(query.dtype)
            cache[..., start:end] = ropes.view(torch.int8)
            scales = (torch.rand(*shape, (cache.shape[-1] - end) // 4, generator=drawn.generator) + 0.5) / 64
            cache[..., end:] = scales.view(torch.int8)

    return constraint


def copied_statistics(*arguments: tuple[int, str]) -> Constraint:
    """Repeat each row's number in the last dimension of statistics, as a device does to fill a block of memory.

    They become those of rows that see keys: a finite maximum, and a sum above 0.
    """

    def constraint(drawn: DrawnArguments) -> None:
        for argument in arguments:
            statistic = drawn.tensor(*argument)
            if statistic is None or not statistic.dim():
                continue
            first = statistic[..., :1].nan_to_num(0.0, 0.0, 0.0)
            if argument[1].endswith("sum"):
                first = first.masked_fill(first <= 0, 1.0)
            statistic.copy_(first.expand_as(statistic))

    return constraint


def ring_attention(drawn: DrawnArguments) -> None:
    """Repeat the statistics of both attentions, and share out the tokens among packed sequences."""
    names = ("prev_softmax_max", "prev_softmax_sum", "cur_softmax_max", "cur_softmax_sum")
    copied_statistics(*zip((1, 2, 4, 5), names, strict=True))(drawn)
    attention, ends = drawn.tensor(0, "prev_attn_out"), drawn.kwargs.get("actual_seq_qlen")
    if attention is not None and isinstance(ends, torch.Tensor):
        _packed(ends, attention.shape[0])


def _layouts(drawn: DrawnArguments, where: Selecting) -> tuple[str, str]:
    of_query, of_key = (drawn.get(*each) or where.layout for each in where.layouts)
    return of_query, of_key


def _mended_lengths(
    drawn: DrawnArguments, where: Selecting, query: torch.Tensor, key: torch.Tensor
) -> tuple[list[int], list[int]]:
    """Map lengths and pages into range; return the length of each sequence of queries and of keys."""
    found = []
    table = drawn.kwargs.get("block_table")
    if isinstance(table, torch.Tensor):
        wrap(table, key.shape[0])
    for tokens, layout, at in zip((query, key), _layouts(drawn, where), where.lengths, strict=True):
        given = drawn.get(*at)
        if layout == "TND":
            found.append(_packed(given, tokens.shape[0]))
            continue
        there = tokens.shape[1]
        if layout == "PA_BSND" and isinstance(table, torch.Tensor):
            there *= table.shape[1]
        if isinstance(given, torch.Tensor):
            wrap(given, there + 1)
        batch = table.shape[0] if layout == "PA_BSND" and isinstance(table, torch.Tensor) else tokens.shape[0]
        found.append([there] * batch if given is None else [int(each) for each in given])
    return found[0], found[1]


def _packed(given: torch.Tensor | Sequence[int] | None, rows: int) -> list[int]:
    """Share out rows among sequences whose ends were drawn; return the lengths."""
    if isinstance(given, torch.Tensor) and given.numel():
        split_evenly(rows, given)
        given.copy_(given.cumsum(0))
    ends = [0, *(int(each) for each in (() if given is None else given))]
    return [max(0, end - start) for start, end in pairwise(ends)]


def _select(chosen: torch.Tensor, limits: torch.Tensor, size: int, generator: torch.Generator) -> None:
    """Choose for each row (..., count) distinct ones of the blocks that hold the first ``limits`` (...) keys."""
    blocks = (-(-limits // size)).view(*limits.shape, *[1] * (chosen.dim() - limits.dim()))
    most = max(int(blocks.max()) if blocks.numel() else 0, chosen.shape[-1])
    for row in range(len(chosen)):
        order = torch.rand(*chosen.shape[1:-1], most, generator=generator)
        order[(torch.arange(most) >= blocks[row]).expand_as(order)] = 2.0
        places = order.argsort(-1)[..., : chosen.shape[-1]]
        unused = torch.arange(chosen.shape[-1]) >= blocks[row]
        chosen[row] = places.masked_fill(unused, -1).to(chosen.dtype)


_KEYWORDS_OF_INDEXER = ((_NOWHERE, "actual_seq_lengths_query"), (_NOWHERE, "actual_seq_lengths_key"))
_ENDS = ((_NOWHERE, "actual_seq_qlen"), (_NOWHERE, "actual_seq_kvlen"))
_LAYOUTS_OF_INDEXER = ((_NOWHERE, "layout_query"), (_NOWHERE, "layout_key"))
_ONE_LAYOUT = ((_NOWHERE, "layout"), (_NOWHERE, "layout"))
_BLOCK_SIZE = (_NOWHERE, "sparse_block_size")

indexer = selected_keys(Selecting(lengths=_KEYWORDS_OF_INDEXER, layouts=_LAYOUTS_OF_INDEXER))
indexer_gradient = selected_keys(
    Selecting(
        lengths=((5, "actual_seq_lengths_query"), (6, "actual_seq_lengths_key")),
        layouts=((7, "layout"), (7, "layout")),
        mode=(8, "sparse_mode"),
        chosen=(3, "sparse_indices"),
    )
)
indexer_loss = selected_keys(
    Selecting(
        lengths=((_NOWHERE, "actual_seq_qlen"), (_NOWHERE, "actual_seq_klen")),
        layouts=_ONE_LAYOUT,
        chosen=(5, "sparse_indices"),
    )
)
sparse_attention = selected_keys(Selecting(chosen=(3, "sparse_indices"), size=_BLOCK_SIZE))
sparse_attention_gradient = selected_keys(
    Selecting(
        lengths=((12, "actual_seq_qlen"), (13, "actual_seq_kvlen")),
        layouts=((14, "layout"), (14, "layout")),
        mode=(15, "sparse_mode"),
        chosen=(3, "sparse_indices"),
        size=(9, "sparse_block_size"),
    )
)
quantized_attention = quantized_cache(Selecting(chosen=(3, "sparse_indices"), size=_BLOCK_SIZE))
selected_blocks = selected_keys(
    Selecting(
        lengths=_ENDS,
        layouts=_ONE_LAYOUT,
        layout="TND",
        mode=None,
        chosen=(3, "topk_indices"),
        size=(6, "select_block_size"),
    )
)
selected_blocks_gradient = in_turn(
    copied_statistics((5, "softmax_max"), (6, "softmax_sum")),
    selected_keys(
        Selecting(
            query=1,
            key=2,
            lengths=_ENDS,
            layouts=_ONE_LAYOUT,
            layout="TND",
            mode=None,
            chosen=(7, "topk_indices"),
            size=(10, "select_block_size"),
        )
    ),
)
