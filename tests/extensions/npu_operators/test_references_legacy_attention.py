"""The first fused attentions and softmaxes against independent definitions, torch's own, and by hand."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from pytest_msprobe.extensions.npu_operators.attention.attention_variants import (
    npu_attn_softmax_,
    npu_attn_softmax_backward_,
    npu_dropout_with_add_softmax,
    npu_masked_softmax_with_rel_pos_bias,
)
from pytest_msprobe.extensions.npu_operators.attention.legacy_attention import (
    npu_fused_attention_score,
    npu_fused_attention_score_backward,
    npu_fused_attention_score_fwd,
    npu_multi_head_attention,
)


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def test_scores_with_a_mask_added_are_torchs_attention() -> None:
    q, k, v = (draw(2, 3, 4, 5, seed=seed) for seed in range(3))
    mask = draw(2, 1, 4, 4, seed=3)
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, mask, scale=0.3)
    found = npu_fused_attention_score(q, k, v, mask, 0.3, 1.0)
    torch.testing.assert_close(found, expected.transpose(1, 2).reshape(8, 15))


def test_dropped_scores_follow_the_mask_that_is_returned() -> None:
    q, k, v = (draw(1, 1, 4, 4, seed=seed) for seed in range(3))
    context, weights, mask = npu_fused_attention_score_fwd(q, k, v, torch.zeros(1, 1, 4, 4), 1.0, 0.5)
    assert 0 < int(mask.sum()) < 16
    torch.testing.assert_close(context, 2 * (weights[0, 0] * mask.view(4, 4)) @ v[0, 0])


def test_gradients_of_scores_are_those_of_autograd() -> None:
    q, k, v = (draw(2, 3, 4, 5, seed=seed).requires_grad_() for seed in range(3))
    mask, grad = draw(2, 1, 4, 4, seed=3), draw(8, 15, seed=4)
    context, weights, kept = npu_fused_attention_score_fwd(q, k, v, mask, 0.3, 1.0)
    expected = torch.autograd.grad(context, (q, k, v), grad)
    found = npu_fused_attention_score_backward(grad, weights, q.detach(), k.detach(), v.detach(), kept, 0.3, 1.0)
    torch.testing.assert_close(found, expected)


def test_a_transposition_is_refused_by_name() -> None:
    q = draw(1, 1, 2, 2)
    with pytest.raises(NotImplementedError, match="key_transpose"):
        npu_fused_attention_score(q, q, q, torch.zeros(1, 1, 2, 2), 1.0, 1.0, key_transpose=True)


def test_a_layer_of_attention_is_torchs() -> None:
    generator = torch.Generator().manual_seed(5)
    x, weights = torch.randn(2 * 3, 8, generator=generator), torch.randn(4, 8, 8, generator=generator)
    found = npu_multi_head_attention(
        x, x, x, *weights[:3], torch.zeros(2, 2, 3, 3), weights[3], *[None] * 5, 2, 4, 3, 3, 0.0, True
    )
    layer = torch.nn.MultiheadAttention(8, 2, bias=False, batch_first=True)
    with torch.no_grad():
        layer.in_proj_weight.copy_(weights[:3].reshape(24, 8))
        layer.out_proj.weight.copy_(weights[3])
        expected = layer(*[x.view(2, 3, 8)] * 3)[0]
    torch.testing.assert_close(found[0], expected.reshape(6, 8), atol=1e-5, rtol=1e-5)


def test_only_the_output_of_a_layer_has_a_gradient() -> None:
    leaves = [draw(4, 4, seed=seed).requires_grad_() for seed in range(7)]
    mask = torch.zeros(2, 2, 2, 2, dtype=torch.float64)

    def layer(*given: Tensor) -> tuple[Tensor | None, ...]:
        return npu_multi_head_attention(*given[:6], mask, given[6], *[None] * 5, 2, 2, 2, 2, 0.0, True)

    assert [each.requires_grad for each in layer(*leaves) if each is not None] == [True] + [False] * 6
    assert torch.autograd.gradcheck(lambda *given: layer(*given)[0], leaves, fast_mode=True)


def test_masks_go_with_windows_and_biases_with_heads() -> None:
    x = torch.zeros(4, 2, 1, 2)
    mask, bias = torch.tensor([[[0.0, -1e9]], [[-1e9, 0.0]]]), torch.zeros(2, 1, 2)
    found = npu_masked_softmax_with_rel_pos_bias(x, mask, bias)
    assert found[:, :, 0].tolist() == [[[1, 0]] * 2, [[0, 1]] * 2] * 2


def test_a_softmax_in_place_and_its_gradient_are_torchs() -> None:
    scores, values, grad = draw(2, 3, 4), draw(2, 4, 5, seed=1), draw(2, 3, 5, seed=2)
    leaf = scores.clone().requires_grad_()
    (expected,) = torch.autograd.grad(torch.softmax(leaf, -1) @ values, leaf, grad)
    assert npu_attn_softmax_(scores) is scores
    torch.testing.assert_close(scores, torch.softmax(leaf.detach(), -1))
    npu_attn_softmax_backward_(scores, grad, values)
    torch.testing.assert_close(scores, expected)


def test_dropout_behind_a_softmax_keeps_what_its_mask_keeps() -> None:
    mask, weights, dropped = npu_dropout_with_add_softmax(draw(1, 1, 4, 8), draw(1, 1, 4, 8, seed=1), 0.5, 0.25, -1)
    assert mask is not None
    assert mask.shape == (128,)
    torch.testing.assert_close(dropped, weights * mask[:32].view(weights.shape) / 0.75)
