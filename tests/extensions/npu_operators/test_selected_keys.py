"""Drawn lengths, pages and selected keys of sparse attention are legal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Generator, Tensor

from pytest_msprobe.engine.replay.inputs.constraints.drawn import DrawnArguments
from pytest_msprobe.engine.replay.ops.op_info import op_info
from tests.support.cann.example_call import Call
from tests.support.cann.examples import lightning_indexer, native_sparse_attention, sparse_attention

EXAMPLES: dict[str, Callable[[Generator], Call]] = {
    name: example
    for family in (lightning_indexer, native_sparse_attention, sparse_attention)
    for name, example in family.EXAMPLES.items()
    if op_info(name.partition("-")[0]).constraint is not None
}

PACKED = [
    "npu_lightning_indexer-packed",
    "npu_lightning_indexer_grad-packed",
    "npu_sparse_flash_attention-packed",
    "npu_sparse_flash_attention_grad-packed",
]


def drawn(name: str) -> tuple[Call, DrawnArguments]:
    """An example and its arguments with all whole numbers in tensors drawn anew, within their range."""
    call = EXAMPLES[name](torch.Generator().manual_seed(3))
    generator = torch.Generator().manual_seed(5)

    def redraw(given: Any) -> Any:
        if not isinstance(given, Tensor) or given.is_floating_point() or given.dtype in (torch.bool, torch.int8):
            return given
        return torch.randint(int(given.min()), int(given.max()) + 1, given.shape, generator=generator).to(given.dtype)

    arguments = DrawnArguments([redraw(each) for each in call.args], {k: redraw(v) for k, v in call.kwargs.items()}, 1)
    constraint = op_info(name.partition("-")[0]).constraint
    assert constraint is not None
    constraint(arguments)
    return call, arguments


@pytest.mark.parametrize("name", [name for name in EXAMPLES if "sparse_flash" in name or "_select_" in name])
def test_selected_keys_are_distinct_and_padded_at_the_end(name: str) -> None:
    _, arguments = drawn(name)
    place = 7 if "select_attention_grad" in name else 3
    chosen = arguments.args[place]
    in_order = chosen.sort(-1).values
    assert not ((in_order.diff(dim=-1) == 0) & (in_order[..., 1:] >= 0)).any()
    assert not ((chosen >= 0).int().diff(dim=-1) > 0).any()
    assert (chosen >= 0).any()


@pytest.mark.parametrize("name", PACKED)
def test_packed_sequences_share_out_the_tokens(name: str) -> None:
    _, arguments = drawn(name)
    ends = [given for key, given in arguments.kwargs.items() if key.startswith("actual_seq")]
    assert len(ends) == 2
    for given in ends:
        assert (given.diff() >= 0).all()
        assert int(given[-1]) in {each.shape[0] for each in arguments.args[:3] if isinstance(each, Tensor)}


@pytest.mark.parametrize("name", [name for name in EXAMPLES if "paged" in name or "infer" in name])
def test_pages_are_those_of_the_cache(name: str) -> None:
    _, arguments = drawn(name)
    table, cache = arguments.kwargs["block_table"], arguments.args[0 if "compress_infer" in name else 1]
    assert int(table.min()) >= 0
    assert int(table.max()) < len(cache)


def test_a_causal_query_selects_keys_that_it_sees() -> None:
    _, arguments = drawn("npu_sparse_flash_attention-batched")
    chosen, query, key = arguments.args[3], arguments.args[0], arguments.args[1]
    for row in range(query.shape[1]):
        limit = key.shape[1] - query.shape[1] + row + 1
        assert int(chosen[:, row].max()) < limit
        assert int((chosen[0, row] >= 0).sum()) == min(limit, chosen.shape[-1])


def test_compressed_blocks_go_to_slots_of_their_own() -> None:
    _, arguments = drawn("npu_nsa_compress_infer")
    slots = arguments.args[2]
    assert len(set(slots.tolist())) == slots.numel()
    assert int(slots.max()) < len(arguments.kwargs["cache"])


def test_the_bytes_of_a_quantized_cache_are_ropes_and_positive_scales() -> None:
    call, arguments = drawn("npu_kv_quant_sparse_flash_attention-half")
    key, own = arguments.args[1], call.args[0].shape[-1] - 32
    assert key[..., own : own + 64].contiguous().view(torch.float16).abs().max() < 8
    scales = key[..., own + 64 :].contiguous().view(torch.float32)
    assert ((scales > 0) & (scales < 1)).all()


def test_statistics_are_repeated_along_the_last_dimension() -> None:
    call = EXAMPLES["npu_ring_attention_update-packed"](torch.Generator().manual_seed(3))
    args = [torch.rand_like(each) for each in call.args]
    arguments = DrawnArguments(args, {**call.kwargs, "actual_seq_qlen": torch.tensor([1, 1])}, 1)
    constraint = op_info("npu_ring_attention_update").constraint
    assert constraint is not None
    constraint(arguments)
    assert torch.equal(args[1], args[1][..., :1].expand_as(args[1]))
    assert arguments.kwargs["actual_seq_qlen"].tolist() == [3, 5]
