"""Caches of keys and values: small numbers worked out by hand, and arguments that mean nothing."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from pytest_msprobe.engine.replay.references import ReferenceRegistry
from tests.support.cann.examples.caches import EXAMPLES


def golden(name: str) -> Any:
    return ReferenceRegistry().get(f"NPU.{name}")


def ints(*numbers: Any) -> Tensor:
    return torch.tensor(numbers)


def counting(*shape: int, start: int = 1) -> Tensor:
    return torch.arange(start, start + torch.Size(shape).numel(), dtype=torch.float64).view(shape)


def test_a_token_goes_to_its_slot_and_a_negative_one_nowhere() -> None:
    cache = torch.zeros(2, 2, 1, 1)
    golden("npu_scatter_pa_cache")(counting(3, 1, 1), ints(3, -1, 0), key_cache=cache)
    assert cache.flatten().tolist() == [3, 0, 0, 1]


def test_a_token_in_chunks_is_spread_over_its_block() -> None:
    key_cache, value_cache = torch.zeros(1, 2, 2, 2), torch.zeros(1, 1, 2, 2)
    golden("npu_scatter_pa_kv_cache")(counting(1, 2, 2), counting(1, 1, 2, start=8), key_cache, value_cache, ints(1))
    assert key_cache.flatten().tolist() == [0, 0, 1, 2, 0, 0, 3, 4]
    assert value_cache.flatten().tolist() == [0, 0, 8, 9]


def test_tokens_of_a_head_are_kept_before_and_behind_their_mean() -> None:
    cache = torch.zeros(3, 2, 1, 1)
    golden("npu_scatter_pa_cache")(
        counting(1, 5, 1, 1), ints([1]), compress_lens=ints(2), compress_seq_offsets=ints(1), seq_lens=ints(4),
        key_cache=cache,
    )  # fmt: skip
    assert cache.flatten().tolist() == [0, 1, 2.5, 4, 0, 0]


def test_gathered_tokens_are_zero_where_the_table_ends() -> None:
    cache = counting(2, 2, 1, 1)
    key, value = golden("npu_gather_pa_kv_cache_functional")(
        cache, cache, ints([1], [0]), ints(3, 1), torch.full((5, 1, 1), 9.0), torch.full((4, 1, 1), 9.0)
    )
    assert key.flatten().tolist() == [3, 4, 0, 1, 9]
    assert value.flatten().tolist() == [3, 4, 0, 1]


@pytest.mark.parametrize("ends", [False, True])
def test_pages_are_loaded_into_tensors_of_their_own(ends: bool) -> None:
    cache = counting(3, 2, 1, 1)
    lengths = ints(3, 4) if ends else ints(3, 1)
    key, value = golden("atb.npu_paged_cache_load")(cache, cache * 2, ints([2, 0], [1, 0]), lengths, cumsum=ends)
    assert key.flatten().tolist() == [5, 6, 1, 3]
    assert value.flatten().tolist() == [10, 12, 2, 6]


def test_a_page_is_attended_by_equal_scores() -> None:
    out = torch.zeros(2, 2, 1, dtype=torch.float64)
    query, keys = torch.zeros(2, 2, 4, dtype=torch.float64), torch.zeros(3, 2, 1, 4, dtype=torch.float64)
    found = golden("atb._npu_paged_attention_v2")(
        query,
        keys,
        ints([2, 0], [1, 0]),
        [3, 1],
        value_cache=counting(3, 2, 1, 1),
        num_heads=2,
        num_kv_heads=1,
        out=out,
    )
    assert found is out
    assert out[:, :, 0].tolist() == [[4, 4], [3, 3]]


def test_decoding_moves_every_sequence_by_one_token() -> None:
    tokens, positions, lengths, slots = ints(1, 1, 1), ints(4, 4, 4), ints(5, 2, 9), ints(0, 0, 0)
    golden("npu_advance_step_flashattn")(
        tokens, ints([30], [40]), positions, lengths, slots, ints([7, 8], [6, 5], [3, 3]), 3, 2, 4
    )
    assert tokens.tolist() == [30, 40, 0]
    assert positions.tolist() == [5, 2, 0]
    assert lengths.tolist() == [6, 3, 9]
    # position 5 is token 1 of the second block, 2 is token 2 of the first one
    assert slots.tolist() == [8 * 4 + 1, 6 * 4 + 2, -1]


def test_decoding_goes_on_behind_the_accepted_tokens() -> None:
    tokens, positions, lengths, slots = ints(0, 0), ints(2, 3), ints(0, 0), ints(0, 0)
    golden("npu_advance_step_flashattn")(
        tokens, ints([30, -1]), positions, lengths, slots, ints([7, 8]), 1, 1, 4, spec_token=ints([50]),
        accepted_num=ints(0),
    )  # fmt: skip
    assert (tokens.tolist(), positions.tolist()) == ([30, 50], [3, 4])
    assert (lengths.tolist(), slots.tolist()) == ([4, 5], [7 * 4 + 3, 8 * 4])


@pytest.mark.parametrize(("is_neox", "turned"), [(True, [-3, -4, 1, 2]), (False, [-2, 1, -4, 3])])
def test_a_quarter_turn_changes_the_elements_of_a_pair(is_neox: bool, turned: list[float]) -> None:
    query, key, quarter = counting(1, 4), counting(1, 8), ints([1.0, 1, 0, 0], [0, 0, 1, 1])
    golden("_npu_rotary_embedding")(ints(1), query, key, 4, quarter, is_neox)
    assert query.tolist() == [turned]
    assert key[:, :4].tolist() == [turned]


def called(example: str, *, at: dict[int, Any] | None = None, **options: Any) -> None:
    call = EXAMPLES[example](torch.Generator().manual_seed(1))
    args = [(at or {}).get(position, given) for position, given in enumerate(call.args)]
    golden(example.partition("-")[0])(*args, **{**call.kwargs, **options})


ONE = torch.ones(1)


@pytest.mark.parametrize(
    ("example", "options", "named"),
    [
        ("npu_scatter_pa_kv_cache", {"cache_mode": "ND"}, "cache_mode"),
        ("npu_scatter_pa_kv_cache", {"compress_lens": ONE}, "compress_lens of 3 dimensions"),
        ("npu_scatter_pa_cache", {"compress_lens": ONE}, "compress_lens of three dimensions"),
        ("npu_gather_pa_kv_cache", {"at": {0: torch.zeros(5, 1, 4, 16)}}, "key_cache in chunks"),
        ("npu_kv_rmsnorm_rope_cache-Norm", {"cache_mode": "BNSD"}, "cache_mode"),
        ("npu_kv_rmsnorm_rope_cache_v2", {"k_cache_dtype": 1}, "k_cache_dtype"),
        ("npu_kv_rmsnorm_rope_cache_v2_functional", {"ckv_cache_dtype": 1}, "ckv_cache_dtype"),
        ("npu_qkv_rms_norm_rope_cache", {"cache_mode": "Norm"}, "cache_mode"),
        ("npu_rope_quant_kvcache", {"quant_mode": 1}, "quant_mode"),
        ("npu_rope_quant_kvcache", {"cache_mode": "ring"}, "cache_mode"),
        ("npu_dequant_rope_quant_kvcache", {"input_layout": "BNSD"}, "input_layout"),
        ("npu_advance_step_flashattn", {"accepted_num": ONE}, "accepted_num alone"),
        ("npu_advance_step_flashattn-speculative", {"accepted_num": None}, "spec_token alone"),
        ("npu_mla_prolog", {"dequant_scale_x": ONE}, "dequant_scale_x"),
        ("npu_mla_prolog_v2", {"cache_mode": "BSND"}, "cache_mode"),
        ("npu_mla_prolog_v2-int8", {"quant_scale_ckv": torch.ones(1, 64)}, "quant_scale_ckv of each channel"),
        ("npu_mla_prolog_v3", {"weight_quant_mode": 3}, "weight_quant_mode"),
        ("npu_mla_prolog_v3", {"ckvkr_repo_mode": 1}, "ckvkr_repo_mode"),
        ("npu_mla_prolog_v3_functional", {"token_x_dtype": 291}, "token_x_dtype"),
        ("_npu_rotary_embedding", {"at": {3: 16}}, "head_size"),
    ],
)
def test_what_has_no_golden_definition_is_named(example: str, options: dict[str, Any], named: str) -> None:
    name = example.partition("-")[0].removesuffix("_functional")
    with pytest.raises(NotImplementedError, match=rf"^{name}\w* has no golden definition with {named}"):
        called(example, **options)


def test_pages_without_values_have_no_golden_definition() -> None:
    with pytest.raises(NotImplementedError, match=r"^atb\._npu_paged_attention_v2 .* without value_cache"):
        golden("atb._npu_paged_attention_v2")(ONE, ONE, ONE, [1], out=ONE)


@pytest.mark.parametrize(
    ("example", "options", "message"),
    [
        ("npu_scatter_pa_cache-mean", {"seq_lens": None}, "needs compress_lens and seq_lens"),
        ("npu_scatter_pa_cache-mean", {"compress_lens": torch.zeros(2, 2)}, "is 0 for head 0 of batch entry 0"),
        ("npu_mla_prolog_v3", {"cache_index": None}, "cache_mode PA_BSND needs cache_index"),
        ("npu_dequant_rope_quant_kvcache", {"weight_scale": None}, "int32 needs weight_scale"),
    ],
)
def test_what_misses_an_argument_says_so(example: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        called(example, **options)
