"""Sparse, block sparse and Floyd attention and ring attention against loops, and by numbers worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from pytest_msprobe.extensions.npu_operators.attention.attention import (
    npu_fusion_attention,
    npu_fusion_attention_grad_v2,
    npu_fusion_attention_grad_v3,
)
from pytest_msprobe.extensions.npu_operators.attention.attention_variants import npu_ring_attention_update
from pytest_msprobe.extensions.npu_operators.sparse_attention.block_sparse_attention import (
    npu_block_sparse_attention,
    npu_fused_floyd_attention,
)
from pytest_msprobe.extensions.npu_operators.sparse_attention.sparse_flash_attention import (
    npu_kv_quant_sparse_flash_attention,
    npu_sparse_flash_attention,
)
from tests.support.cann.examples.sparse_attention import EXAMPLES


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).requires_grad_()


# Scores log 1, log 2, log 3 and log 4 with values 1 to 4: weights are the scores' powers over their sum.
QUERY = torch.ones(1, 1, 1, 1, dtype=torch.float64)
KEY = torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.float64).log().reshape(1, 4, 1, 1)
VALUE = torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.float64).reshape(1, 4, 1, 1)


def attended(*places: int, **options: Any) -> tuple[float, float, float]:
    indices = torch.tensor(places, dtype=torch.int32).reshape(1, 1, 1, -1)
    results = npu_sparse_flash_attention(QUERY, KEY, VALUE, indices, 1.0, return_softmax_lse=True, **options)
    out, maximum, total = (each.item() for each in results)
    return out, maximum, total


def test_attention_is_over_the_selected_keys() -> None:
    assert attended(3, 1) == pytest.approx(((16 + 4) / 6, math.log(4), 1.5))


def test_what_follows_a_negative_position_is_not_selected() -> None:
    assert attended(1, -1, 3) == pytest.approx((2, math.log(2), 1))


def test_a_key_that_is_selected_twice_counts_twice() -> None:
    assert attended(3, 1, 1) == pytest.approx(((16 + 8) / 8, math.log(4), 2))


def test_a_block_selects_its_keys() -> None:
    assert attended(1, sparse_block_size=2) == pytest.approx((25 / 7, math.log(4), 7 / 4))


def test_a_sink_takes_its_share() -> None:
    found = attended(0, 1, sinks=torch.tensor([0.0]))
    assert found == pytest.approx((5 / 4, math.log(2), 2))


def test_a_query_without_keys_gives_nothing() -> None:
    assert attended(-1, -1) == (0, 0, 0)


def test_a_causal_query_does_not_see_what_is_selected_behind_it() -> None:
    query, indices = QUERY.expand(1, 2, 1, 1), torch.tensor([3, 0], dtype=torch.int32).expand(1, 2, 1, 2)
    first, second = npu_sparse_flash_attention(query, KEY, VALUE, indices, 1.0)[0].flatten().tolist()
    assert (first, second) == pytest.approx((1, 17 / 5))


def test_statistics_are_empty_unless_they_are_asked_for() -> None:
    indices = torch.zeros(1, 1, 1, 1, dtype=torch.int32)
    assert [each.numel() for each in npu_sparse_flash_attention(QUERY, KEY, VALUE, indices, 1.0)] == [1, 0, 0]


def test_gradients_of_sparse_attention_are_those_of_finite_differences() -> None:
    indices = torch.tensor([[1, 0, -1], [2, 0, 1]], dtype=torch.int32).reshape(1, 2, 1, 3)

    def function(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return npu_sparse_flash_attention(q, k, v, indices, 0.5)[0]

    assert torch.autograd.gradcheck(function, (draw(1, 2, 2, 3), draw(1, 3, 1, 3, seed=1), draw(1, 3, 1, 3, seed=2)))


def test_gradients_of_block_sparse_attention_are_those_of_finite_differences() -> None:
    mask = torch.tensor([[[[1], [0]], [[1], [1]]]])

    def function(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        options = {"q_input_layout": "BNSD", "kv_input_layout": "BNSD", "scale_value": 0.5}
        return npu_block_sparse_attention(q, k, v, mask, [2, 128], **options)[0]

    tensors = (draw(1, 2, 4, 2), draw(1, 1, 3, 2, seed=1), draw(1, 1, 3, 2, seed=2))
    assert torch.autograd.gradcheck(function, tensors)


def test_gradients_of_floyd_attention_are_those_of_finite_differences() -> None:
    shapes = ((1, 1, 2, 2, 2), (1, 1, 2, 3, 2), (1, 1, 2, 3, 2), (1, 1, 3, 2, 2), (1, 1, 3, 2, 2))
    mask = torch.tensor([[False, True, False], [True, True, True]]).reshape(1, 1, 2, 1, 3)

    def function(*tensors: Tensor) -> Tensor:
        return npu_fused_floyd_attention(*tensors, atten_mask=mask, scale_value=0.5)[2]

    assert torch.autograd.gradcheck(function, [draw(*shape, seed=seed) for seed, shape in enumerate(shapes)])


def test_merged_attention_is_that_over_all_keys() -> None:
    q, k, v = (draw(1, 2, 5, 3, seed=seed).detach() for seed in range(3))
    whole = npu_fusion_attention(q, k, v, 2, "BNSD")
    first, second = (
        npu_fusion_attention(q, k[:, :, part], v[:, :, part], 2, "BNSD") for part in (slice(2), slice(2, 5))
    )

    def in_sbh(out: Tensor) -> Tensor:
        return out.permute(2, 0, 1, 3).flatten(2)

    merged = npu_ring_attention_update(in_sbh(first[0]), *first[1:3], in_sbh(second[0]), *second[1:3])
    torch.testing.assert_close(merged, (in_sbh(whole[0]), *whole[1:3]))


def test_packed_attention_is_merged_in_the_order_of_its_statistics() -> None:
    q, k, v = (draw(5, 2, 3, seed=seed).detach() for seed in range(3))
    whole = npu_fusion_attention(q, k, v, 2, "TND", actual_seq_qlen=[2, 5], actual_seq_kvlen=[2, 5])
    first, second = (
        npu_fusion_attention(q, k[keys], v[keys], 2, "TND", actual_seq_qlen=[2, 5], actual_seq_kvlen=ends)
        for keys, ends in (([0, 2, 3], [1, 3]), ([1, 4], [1, 2]))
    )
    ends = torch.tensor([0, 2, 5])
    merged = npu_ring_attention_update(*first[:3], *second[:3], actual_seq_qlen=ends, input_layout="TND")
    torch.testing.assert_close(merged, whole[:3])


@pytest.mark.parametrize("version", [2, 3])
def test_gradients_of_later_versions_are_those_of_autograd(version: int) -> None:
    q, k, v, pse, sink = (
        draw(*shape, seed=seed) for seed, shape in enumerate([(1, 2, 3, 4)] * 3 + [(1, 2, 3, 3), (2,)])
    )
    out = npu_fusion_attention(q, k, v, 2, "BNSD", pse=pse, sink=sink, scale=0.5)[0]
    dy = draw(*out.shape, seed=9).detach()
    wanted = torch.autograd.grad(out, (q, k, v, pse, sink), dy)
    function = npu_fusion_attention_grad_v2 if version == 2 else npu_fusion_attention_grad_v3
    found = function(q, k, v, dy, 2, "BNSD", pse=pse, sink=sink, scale_value=0.5)
    torch.testing.assert_close([each for each in found if each is not None], list(wanted))


def test_ropes_of_the_second_version_are_further_dimensions() -> None:
    q, k, v, q_rope, k_rope = (draw(3, 2, width, seed=width + place) for place, width in enumerate((4, 4, 4, 2, 2)))
    ends = {"actual_seq_qlen": [3], "actual_seq_kvlen": [3]}
    out = npu_fusion_attention(torch.cat([q, q_rope], -1), torch.cat([k, k_rope], -1), v, 2, "TND", scale=0.3, **ends)[
        0
    ]
    dy = draw(*out.shape, seed=9).detach()
    wanted = torch.autograd.grad(out, (q, k, v, q_rope, k_rope), dy)
    ropes = {"query_rope": q_rope, "key_rope": k_rope}
    found = npu_fusion_attention_grad_v2(q, k, v, dy, 2, "TND", scale_value=0.3, **ropes, **ends)
    torch.testing.assert_close((*found[:3], *found[4:6]), wanted)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"sparse_mode": 4}, "sparse_mode"),
        ({"sparse_mode": 0, "pre_tokens": 7}, "pre_tokens"),
        ({"attention_mode": 1}, "attention_mode"),
        ({"layout_query": "BNSD"}, "layout"),
    ],
)
def test_what_has_no_meaning_is_refused_by_name(options: dict[str, Any], named: str) -> None:
    with pytest.raises(NotImplementedError, match=named):
        attended(0, **options)


def test_a_quantization_by_other_than_tiles_is_refused() -> None:
    call = EXAMPLES["npu_kv_quant_sparse_flash_attention-paged"](torch.Generator())
    with pytest.raises(NotImplementedError, match="key_quant_mode"):
        npu_kv_quant_sparse_flash_attention(*call.args[:5], 0, 2, **call.kwargs)


def test_packed_queries_need_their_ends() -> None:
    indices = torch.zeros(1, 1, 1, dtype=torch.int32)
    with pytest.raises(ValueError, match="where each sequence ends"):
        npu_sparse_flash_attention(QUERY[0], KEY[0], VALUE[0], indices, 1.0, layout_query="TND", layout_kv="TND")


def test_pages_need_their_table() -> None:
    with pytest.raises(ValueError, match="block_table"):
        attended(0, layout_kv="PA_BSND")
