"""Drawn whole numbers that say where keys and values lie: within the caches, and no place written to twice."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from pytest_msprobe.engine.replay.inputs.constraints.drawn import DrawnArguments
from pytest_msprobe.engine.replay.ops.op_info import op_info
from tests.support.cann.examples import caches, inference_attention


def mended(example: str, spoiled: dict[int | str, Tensor]) -> DrawnArguments:
    """Return the arguments of an example, some replaced, as the operator's constraint leaves them."""
    make = {**caches.EXAMPLES, **inference_attention.EXAMPLES}[example]
    call = make(torch.Generator().manual_seed(1))
    args = [spoiled.get(position, given) for position, given in enumerate(call.args)]
    named = {name: each for name, each in spoiled.items() if isinstance(name, str)}
    drawn = DrawnArguments(args, {**call.kwargs, **named}, 3)
    constraint = op_info(example.partition("-")[0]).constraint
    assert constraint is not None
    constraint(drawn)
    return drawn


def is_within(numbers: Tensor, low: int, high: int) -> bool:
    return low <= int(numbers.min()) and int(numbers.max()) < high


@pytest.mark.parametrize(
    ("example", "at", "shape", "count"),
    [
        ("npu_scatter_pa_kv_cache", 4, (5,), 3 * 4),
        ("npu_scatter_pa_kv_cache-Norm", 4, (5,), 3 * 4),
        ("npu_scatter_pa_cache", 1, (5,), 3 * 4),
        ("npu_kv_rmsnorm_rope_cache-PA_NZ", 4, (10,), 6 * 4),
        ("npu_qkv_rms_norm_rope_cache", 5, (6,), 12),
        ("npu_rope_quant_kvcache-pages", 5, (6,), 32),
        ("npu_mla_prolog", 9, (3, 2), 16),
        ("npu_mla_prolog_v3", "cache_index", (3, 2), 16),
        ("_npu_reshape_and_cache", 4, (7,), 20),
        ("_npu_reshape_and_cache-chunks", 4, (7,), 20),
    ],
)
def test_each_token_has_a_slot_of_its_own(example: str, at: int | str, shape: tuple[int, ...], count: int) -> None:
    drawn = mended(example, {at: torch.full(shape, 7)})
    slots = drawn.kwargs[at] if isinstance(at, str) else drawn.args[at]
    assert is_within(slots, 0, count)
    assert slots.unique().numel() == slots.numel()


def test_tokens_without_a_slot_are_skipped() -> None:
    drawn = mended("npu_scatter_pa_cache", {1: torch.full((20,), 7)})
    assert sorted(drawn.args[1].tolist()) == [-1] * 8 + list(range(12))


def test_each_block_of_tokens_has_a_block_of_its_own() -> None:
    index = mended("npu_kv_rmsnorm_rope_cache-PA_BLK_BNSD", {4: torch.full((4,), 9)}).args[4]
    assert index.unique().numel() == 4
    assert (index % 4 == 0).all()
    assert is_within(index, 0, 24)


def test_each_sequence_has_slots_of_its_own_in_its_row() -> None:
    index = mended("npu_kv_rmsnorm_rope_cache-Norm", {4: torch.full((2, 5), 9)}).args[4]
    assert is_within(index, 0, 9)
    assert all(row.unique().numel() == 5 for row in index)


@pytest.mark.parametrize("example", ["npu_scatter_pa_cache-mean", "npu_scatter_pa_cache-last"])
def test_heads_write_to_places_that_do_not_overlap(example: str) -> None:
    lengths: dict[int | str, Any] = {"compress_lens": torch.full((4,), 90), "seq_lens": torch.full((2,), 90)}
    if example.endswith("mean"):
        lengths["compress_seq_offsets"] = torch.full((4,), 90)
    drawn = mended(example, {1: torch.full((2, 2), 3), **lengths})
    sizes, total = drawn.kwargs["compress_lens"], drawn.kwargs["seq_lens"].repeat_interleave(2)
    written = total - sizes + 1 if example.endswith("mean") else sizes
    starts = drawn.args[1].flatten()
    assert (starts[1:] >= (starts + written)[:-1]).all()
    assert is_within(starts + written, 0, 24 + 1)
    assert is_within(total, 1, 6 + 1)


@pytest.mark.parametrize("example", ["npu_gather_pa_kv_cache", "npu_gather_pa_kv_cache-offsets"])
def test_gathered_rows_are_shared_out(example: str) -> None:
    is_ends = example.endswith("offsets")
    drawn = mended(example, {2: torch.full((2, 2), 17), 3: torch.full((3 if is_ends else 2,), 5)})
    assert is_within(drawn.args[2], 0, 5)
    assert drawn.args[3].tolist() == ([0, 6, 12] if is_ends else [6, 6])


@pytest.mark.parametrize("example", ["_npu_paged_attention", "_npu_paged_attention-chunks"])
def test_pages_that_are_attended_to_exist(example: str) -> None:
    drawn = mended(example, {6: torch.full((3, 2), 17), 7: torch.tensor([3, 8, 80])})
    assert is_within(drawn.args[6], 0, 5)
    assert drawn.args[7].tolist() == [3, 8, 80 % 9]


def test_blocks_that_are_attended_to_exist() -> None:
    drawn = mended("npu_incre_flash_attention-in blocks", {"block_table": torch.full((2, 4), 1000)})
    assert is_within(drawn.kwargs["block_table"], 0, len(drawn.args[1]))


def test_a_sequence_that_is_written_ends_in_the_cache() -> None:
    assert is_within(mended("npu_rope_quant_kvcache", {5: torch.tensor([6, 7, 90])}).args[5], 0, 7)


@pytest.mark.parametrize("example", ["npu_advance_step_flashattn", "npu_advance_step_flashattn-speculative"])
def test_decoded_tokens_are_in_blocks_of_their_rows(example: str) -> None:
    count, columns, growth = (12, 4, 5) if example.endswith("speculative") else (6, 3, 2)
    drawn = mended(example, {2: torch.full((count,), 99), 3: torch.full((count,), 99)})
    for position in (2, 3):
        assert is_within(drawn.args[position], 0, columns * 4 - growth + 1)


@pytest.mark.parametrize("cumsum", [False, True])
def test_loaded_rows_are_shared_out(cumsum: bool) -> None:
    cache, table, lengths = torch.zeros(5, 4, 2, 8), torch.full((2, 3), 19), torch.full((2 + cumsum,), 50)
    drawn = DrawnArguments([cache, cache, table, lengths], {"cumsum": cumsum, "key": torch.zeros(9, 2, 8)}, 3)
    constraint = op_info("atb.npu_paged_cache_load").constraint
    assert constraint is not None
    constraint(drawn)
    assert is_within(table, 0, 5)
    assert lengths.tolist() == ([0, 5, 9] if cumsum else [5, 4])
