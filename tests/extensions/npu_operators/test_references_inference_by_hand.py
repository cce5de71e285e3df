"""Attention of inference: small numbers worked out by hand, and arguments that mean nothing."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from pytest_msprobe.extensions.npu_operators.attention.inference_attention import (
    npu_fused_infer_attention_score,
    npu_fused_infer_attention_score_v2,
    npu_incre_flash_attention,
    npu_prompt_flash_attention,
)

NONE = torch.zeros(1, 1, 1, 2, dtype=torch.float64)
KEYS = torch.zeros(1, 1, 3, 2, dtype=torch.float64)
VALUES = torch.tensor([1.0, 2, 6], dtype=torch.float64).view(1, 1, 3, 1)


def fused(q: Tensor = NONE, k: Tensor = KEYS, v: Tensor = VALUES, **options: Any) -> tuple[list[float], list[float]]:
    out, lse = npu_fused_infer_attention_score(q, k, v, input_layout="BNSD", softmax_lse_flag=True, **options)
    assert lse is not None
    return out.flatten().tolist(), lse.flatten().tolist()


def test_equal_scores_give_the_mean_and_the_logarithm_of_their_number() -> None:
    assert fused() == ([pytest.approx(3)], [pytest.approx(math.log(3))])
    assert fused(actual_seq_lengths_kv=[2]) == ([pytest.approx(1.5)], [pytest.approx(math.log(2))])


def test_what_is_added_to_scores_is_not_scaled() -> None:
    shift = torch.tensor([math.log(2), 0, -math.inf], dtype=torch.float64).view(1, 1, 1, 3)
    out, lse = fused(pse_shift=shift, scale=0.25)
    assert out == [pytest.approx((2 * 1 + 2) / 3)]
    assert lse == [pytest.approx(math.log(3))]


def test_a_row_that_sees_nothing_is_zero() -> None:
    assert fused(atten_mask=torch.ones(1, 1, 1, 3, dtype=torch.bool)) == ([0], [math.inf])


def test_a_sink_takes_a_share_of_the_weights() -> None:
    out, lse = npu_fused_infer_attention_score_v2(
        NONE, KEYS, VALUES, input_layout="BNSD", learnable_sink=torch.zeros(1), return_softmax_lse=True
    )
    assert lse is not None
    assert (out.item(), lse.item()) == (pytest.approx(9 / 4), pytest.approx(math.log(4)))


def test_a_prefix_is_before_the_keys_of_every_sequence() -> None:
    prefix = torch.tensor([7.0, 100], dtype=torch.float64).view(1, 1, 2, 1)
    out, _ = fused(key_shared_prefix=KEYS[:, :, :2], value_shared_prefix=prefix, actual_shared_prefix_len=[1])
    assert out == [pytest.approx(16 / 4)]


def test_rope_parts_are_further_dimensions() -> None:
    ones = torch.ones(1, 1, 1, 2, dtype=torch.float64)
    rope = torch.tensor([math.log(2), 0, 0], dtype=torch.float64).view(1, 1, 3, 1) / 2
    out, _ = fused(query_rope=ones, key_rope=rope.expand(1, 1, 3, 2))
    assert out == [pytest.approx((2 * 1 + 2 + 6) / 4)]


def test_rows_behind_a_sequence_are_not_its_own() -> None:
    out, _ = fused(actual_seq_lengths_kv=[1], kv_padding_size=torch.tensor([1]))
    assert out == [pytest.approx(2)]


def test_whole_keys_are_shifted_before_they_are_scaled() -> None:
    out, _ = fused(
        k=KEYS.to(torch.int8), v=VALUES.to(torch.int8), antiquant_scale=torch.tensor([[1.0], [0.5]]),
        antiquant_offset=torch.tensor([[0.0], [1.0]]),
    )  # fmt: skip
    assert out == [pytest.approx((2 + 3 + 7) / 3 * 0.5)]


def test_results_are_rounded_to_int8() -> None:
    out = npu_prompt_flash_attention(
        NONE, KEYS, VALUES, input_layout="BNSD", quant_scale2=torch.tensor([2.0]), quant_offset2=torch.tensor([-0.8])
    )
    assert out.dtype is torch.int8
    assert out.item() == 5


ONE = torch.ones(1)
FUSED = npu_fused_infer_attention_score
FUSED_2 = npu_fused_infer_attention_score_v2


@pytest.mark.parametrize(
    ("operator", "options", "named"),
    [
        *((npu_incre_flash_attention, {name: ONE}, name) for name in ("padding_mask", "quant_scale1")),
        *((FUSED, {name: ONE}, name) for name in ("dequant_scale2", "key_rope_antiquant_scale")),
        (FUSED, {"sparse_mode": 9}, "sparse_mode 9"),
        (FUSED, {"input_layout": "SH"}, "input_layout"),
        *((FUSED_2, {name: ONE}, name) for name in ("dequant_scale_query", "quant_scale_p", "dequant_scale_key_rope")),
        *((FUSED_2, {name: 1}, name) for name in ("query_quant_mode", "key_dtype", "out_dtype")),
    ],
)
def test_what_has_no_golden_definition_is_named(operator: Any, options: dict[str, Any], named: str) -> None:
    with pytest.raises(NotImplementedError, match=rf"^{operator.__name__} has no golden definition with {named}$"):
        operator(NONE, KEYS, VALUES, **{"input_layout": "BNSD", **options})


@pytest.mark.parametrize(("at", "named"), [(0, "query"), (1, "key"), (2, "value")])
def test_whole_numbers_without_scales_are_named(at: int, named: str) -> None:
    tensors = [x.to(torch.int8) if place == at else x for place, x in enumerate((NONE, KEYS, VALUES))]
    with pytest.raises(NotImplementedError, match=rf"with {named} of torch\.int8$"):
        npu_fused_infer_attention_score(*tensors, input_layout="BNSD")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sparse_mode": 5}, r"sparse_mode 5 of npu_fused_infer_attention_score is not one of"),
        ({"input_layout": "TND"}, "input_layout TND of npu_fused_infer_attention_score needs actual_seq_lengths"),
        ({"block_table": torch.zeros(1, 1)}, "needs actual_seq_lengths_kv"),
        (
            {"key_antiquant_scale": ONE, "key_antiquant_mode": 4, "actual_seq_lengths_kv": [3]},
            r"parameters in blocks \(mode 4\) need block_table",
        ),
    ],
)
def test_what_misses_an_argument_says_so(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        npu_fused_infer_attention_score(NONE, KEYS, VALUES, **{"input_layout": "BNSD", **options})
