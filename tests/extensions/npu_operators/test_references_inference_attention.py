"""Attention of inference and the later versions of fused attention, against one query at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from pytest_msprobe.extensions.npu_operators.attention.attention import npu_fusion_attention
from pytest_msprobe.extensions.npu_operators.attention.attention_variants import (
    npu_attention_update,
    npu_fusion_attention_v2,
    npu_fusion_attention_v3,
)
from pytest_msprobe.extensions.npu_operators.attention.inference_attention import (
    npu_fused_infer_attention_score,
    npu_fused_infer_attention_score_v2,
    npu_incre_flash_attention,
    npu_prompt_flash_attention,
)

TRIANGLE = torch.ones(2048, 2048, dtype=torch.bool).triu(1)
FAR = 2147483647


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def close(actual: Tensor | None, expected: object) -> None:
    assert actual is not None
    np.testing.assert_allclose(actual.detach().numpy(), np.asarray(expected), rtol=1e-11, atol=1e-12)


def by_hand(q: Tensor, k: Tensor, v: Tensor, visible: Any, scale: float) -> Tensor:
    """Attention of (B, N, S, D), of the keys for which ``visible(batch, row, column)``; a blind row gives 0."""
    out = torch.zeros(*q.shape[:3], v.shape[3], dtype=torch.float64)
    for b, n, row in np.ndindex(*q.shape[:3]):
        group = n * k.shape[1] // q.shape[1]
        seen = [column for column in range(k.shape[2]) if visible(b, row, column)]
        if seen:
            weights = np.exp([scale * float(q[b, n, row] @ k[b, group, column]) for column in seen])
            out[b, n, row] = sum(w * v[b, group, c] for w, c in zip(weights / weights.sum(), seen, strict=True))
    return out


def in_layout(x: Tensor, layout: str) -> Tensor:
    by_token = x.transpose(1, 2)
    return {"BNSD": x, "BSND": by_token, "BSH": by_token.flatten(-2), "BNSD_BSND": x}[layout]


Q, K, V = draw(2, 4, 3, 6), draw(2, 2, 5, 6, seed=1), draw(2, 2, 5, 6, seed=2)


@pytest.mark.parametrize("layout", ["BSH", "BSND", "BNSD", "BNSD_BSND"])
def test_a_prompt_is_attended_in_every_layout(layout: str) -> None:
    expected = by_hand(Q, K, V, lambda *_: True, 0.4)
    tensors = [in_layout(x, layout) for x in (Q, K, V)]
    options: dict[str, Any] = {"num_heads": 4, "num_key_value_heads": 2, "input_layout": layout}
    result_layout = layout.rpartition("_")[2]
    close(npu_prompt_flash_attention(*tensors, scale_value=0.4, **options), in_layout(expected, result_layout))
    out, lse = npu_fused_infer_attention_score(*tensors, scale=0.4, **options)
    close(out, in_layout(expected, result_layout))
    assert lse is None


@pytest.mark.parametrize("lengths", [None, [4], [3, 5]])
@pytest.mark.parametrize("mode", [0, 1, 2, 3, 4])
def test_masks_of_a_prompt_end_where_the_keys_of_its_sequence_do(lengths: list[int] | None, mode: int) -> None:
    given = draw(2, 3, 5, seed=3) > 0.8
    ends = [5, 5] if lengths is None else lengths * (3 - len(lengths)) if len(lengths) == 1 else lengths
    before, after = 2, 1
    rules = {
        0: lambda b, r, c: not given[b, r, c] and -before <= c - r <= after,
        1: lambda b, r, c: not given[b, r, c],
        2: lambda b, r, c: c <= r,
        3: lambda b, r, c: c <= r + ends[b] - 3,
        4: lambda b, r, c: -before <= c - r - (ends[b] - 3) <= after,
    }
    expected = by_hand(Q, K, V, lambda b, r, c: c < ends[b] and rules[mode](b, r, c), 0.5)
    out = npu_prompt_flash_attention(
        Q, K, V, num_heads=4, num_key_value_heads=2, input_layout="BNSD", scale_value=0.5, sparse_mode=mode,
        atten_mask=given if mode < 2 else TRIANGLE, pre_tokens=before, next_tokens=after, actual_seq_lengths_kv=lengths,
    )  # fmt: skip
    close(out, expected)


def test_without_a_mask_the_band_of_a_prompt_hides_nothing() -> None:
    out = npu_prompt_flash_attention(Q, K, V, num_heads=4, num_key_value_heads=2, input_layout="BNSD", next_tokens=0)
    close(out, by_hand(Q, K, V, lambda *_: True, 1.0))


def test_one_token_attends_to_the_keys_before_it() -> None:
    q = Q[:, :, :1]
    hidden = draw(2, 1, 1, 5, seed=4) > 0.5
    out = npu_incre_flash_attention(
        q, K, V, num_heads=4, num_key_value_heads=2, input_layout="BNSD", scale_value=0.3, atten_mask=hidden,
        actual_seq_lengths=[3, 5],
    )  # fmt: skip
    close(out, by_hand(q, K, V, lambda b, r, c: c < (3, 5)[b] and not hidden[b, 0, 0, c], 0.3))


@pytest.mark.parametrize("heads_before_tokens", [False, True])
def test_keys_are_found_in_the_blocks_that_the_table_names(heads_before_tokens: bool) -> None:
    q, keys, values = Q[:, :, :1], draw(5, 3, 2, 6, seed=5), draw(5, 3, 2, 6, seed=6)
    # blocks of three tokens; the second sequence ends in its second block
    table, lengths = torch.tensor([[4, 0], [2, 3]], dtype=torch.int32), [6, 4]
    dense = [
        torch.stack([cache[row.long()].flatten(0, 1) for row in table]).transpose(1, 2) for cache in (keys, values)
    ]
    expected = by_hand(q, *dense, lambda b, r, c: c < lengths[b], 0.3)
    caches = [cache.transpose(1, 2) if heads_before_tokens else cache.flatten(2) for cache in (keys, values)]
    out = npu_incre_flash_attention(
        q, *caches, num_heads=4, num_key_value_heads=2, input_layout="BNSD", scale_value=0.3, block_table=table,
        block_size=3, actual_seq_lengths=lengths,
    )  # fmt: skip
    close(out, expected)
    with pytest.raises(ValueError, match="needs actual_seq_lengths"):
        npu_incre_flash_attention(q, *caches, num_heads=4, input_layout="BNSD", block_table=table)


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: npu_prompt_flash_attention(Q, K, V, padding_mask=Q), "padding_mask"),
        (lambda: npu_prompt_flash_attention(Q, K, V, deq_scale1=Q), "deq_scale1"),
        (lambda: npu_prompt_flash_attention(Q, K, V, input_layout="SH"), "input_layout"),
        (lambda: npu_prompt_flash_attention(Q, K.char(), V, input_layout="BNSD"), "key of torch.int8"),
        (lambda: npu_prompt_flash_attention(Q.char(), K, V, input_layout="BNSD"), "query of torch.int8"),
        (lambda: npu_incre_flash_attention(Q, K, V, quant_scale1=Q), "quant_scale1"),
        (lambda: npu_fused_infer_attention_score(Q, K, V, key_rope_antiquant_scale=Q), "key_rope_antiquant_scale"),
        (lambda: npu_fused_infer_attention_score(Q, K, V, sparse_mode=9), "sparse_mode 9"),
        (lambda: npu_fused_infer_attention_score_v2(Q, K, V, dequant_scale_query=Q), "dequant_scale_query"),
        (lambda: npu_fused_infer_attention_score_v2(Q, K, V, out_dtype=1), "out_dtype"),
        (lambda: npu_fusion_attention_v2(Q, K, V, 4, "BNSD", pse_type=2), "pse_type"),
        (lambda: npu_fusion_attention_v2(Q, K, V, 4, "BNSD", q_start_idx=[1]), "q_start_idx"),
    ],
)  # fmt: skip
def test_what_has_no_golden_definition_is_named(call: Any, named: str) -> None:
    with pytest.raises(NotImplementedError, match=f"has no golden definition with {named}"):
        call()


def test_a_mode_that_an_operator_lacks_is_refused_under_its_name() -> None:
    with pytest.raises(ValueError, match="sparse_mode 9 of npu_prompt_flash_attention"):
        npu_prompt_flash_attention(Q, K, V, num_heads=4, num_key_value_heads=2, input_layout="BNSD", sparse_mode=9)


@pytest.mark.parametrize("kind", [0, 1])
def test_the_second_version_adds_pse_before_or_behind_the_scale(kind: int) -> None:
    pse = draw(1, 4, 3, 5, seed=5)
    out, maximum, *_ = npu_fusion_attention_v2(Q, K, V, 4, "BNSD", pse=pse, scale=0.4, pse_type=kind)
    scores = np.einsum("bnsd,bntd->bnst", Q.numpy(), K.repeat_interleave(2, 1).numpy())
    scores = scores * 0.4 + pse.numpy() if kind == 0 else (scores + pse.numpy()) * 0.4
    weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    close(out, weights @ V.repeat_interleave(2, 1).numpy())
    close(maximum[..., 0], scores.max(-1))


def test_the_second_version_has_other_names_for_the_band() -> None:
    out = npu_fusion_attention_v2(Q, K, V, 4, "BNSD", atten_mask=TRIANGLE, sparse_mode=4, pre_tokens=2, next_tokens=1)
    close(out[0], by_hand(Q, K, V, lambda b, r, c: -2 <= c - r - 2 <= 1, 1.0))


def test_the_third_version_takes_lengths_and_gives_states_as_tensors() -> None:
    q, k, v = draw(3, 4, 6), draw(5, 2, 6, seed=1), draw(5, 2, 6, seed=2)
    lengths = {"actual_seq_qlen": torch.tensor([1, 3]), "actual_seq_kvlen": torch.tensor([2, 5])}
    found = npu_fusion_attention_v3(q, k, v, 4, "TND", **lengths)
    expected = npu_fusion_attention(q, k, v, 4, "TND", actual_seq_qlen=[1, 3], actual_seq_kvlen=[2, 5])
    assert len(found) == 6
    assert found[0].equal(expected[0])
    assert all(isinstance(state, Tensor) for state in found)


def test_attention_has_gradients_in_its_later_versions() -> None:
    inputs = tuple(x[:1, :2, :3].clone().requires_grad_() for x in (Q, K, V))
    assert torch.autograd.gradcheck(lambda *t: npu_fusion_attention_v2(*t, 2, "BNSD", scale=0.4)[0], inputs)
    assert torch.autograd.gradcheck(lambda *t: npu_fusion_attention_v3(*t, 2, "BNSD", scale=0.4)[0], inputs)


def test_attentions_over_parts_of_the_keys_are_merged_to_that_over_all() -> None:
    q, k, v = draw(3, 6), draw(7, 6, seed=1), draw(7, 4, seed=2)
    scores = q.numpy() @ k.numpy().T
    parts = [slice(0, 3), slice(3, 7)]
    lse = [torch.from_numpy(np.log(np.exp(scores[:, part]).sum(-1))) for part in parts]
    outs = [
        torch.from_numpy(np.exp(scores[:, part]) @ v[part].numpy() / np.exp(scores[:, part]).sum(-1, keepdims=True))
        for part in parts
    ]
    merged, total = npu_attention_update(lse, outs, 1)
    close(merged, np.exp(scores) @ v.numpy() / np.exp(scores).sum(-1, keepdims=True))
    close(total, np.log(np.exp(scores).sum(-1)))
    assert npu_attention_update(lse, outs, 0)[1] is None
