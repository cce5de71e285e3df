"""The lightning indexer and its loss against loops, and by numbers worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from pytest_msprobe.extensions.npu_operators.sparse_attention.indexer_losses import (
    npu_dense_lightning_indexer_grad_kl_loss,
    npu_sparse_lightning_indexer_grad_kl_loss,
)
from pytest_msprobe.extensions.npu_operators.sparse_attention.lightning_indexer import (
    npu_lightning_indexer,
    npu_quant_lightning_indexer,
)
from tests.support.cann.examples.lightning_indexer import EXAMPLES


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).requires_grad_()


def test_scores_are_weighted_sums_of_what_is_positive() -> None:
    query = torch.tensor([[1.0, 0.0], [0.0, 1.0]]).reshape(1, 1, 2, 2)
    key = torch.tensor([[3.0, -9.0], [1.0, 2.0], [-5.0, 4.0]]).reshape(1, 3, 1, 2)
    weights = torch.tensor([2.0, -1.0]).reshape(1, 1, 2)
    # 2 * 3 - 0, 2 * 1 - 2, 0 - 4
    positions, scores = npu_lightning_indexer(query, key, weights, sparse_count=4, return_value=True)
    assert positions.flatten().tolist() == [0, 1, 2, -1]
    assert scores.flatten().tolist() == [6, 0, -4, -math.inf]
    assert positions.dtype == torch.int32


def test_a_causal_query_sees_the_keys_up_to_the_diagonal_that_ends_at_the_bottom_right() -> None:
    query, key, weights = torch.ones(1, 3, 1, 1), torch.arange(1.0, 3.0).reshape(1, 2, 1, 1), torch.ones(1, 3, 1)
    positions, empty = npu_lightning_indexer(query, key, weights, sparse_count=2)
    assert positions.squeeze().tolist() == [[-1, -1], [0, -1], [1, 0]]
    assert empty.numel() == 0


def test_scales_of_tokens_change_the_order() -> None:
    query, key = torch.ones(1, 1, 1, 1, dtype=torch.int8), torch.tensor([[[[100]], [[60]]]], dtype=torch.int8)
    weights, scale = torch.ones(1, 1, 1).half(), torch.tensor([[[0.5], [1.0]]]).half()
    call = (query, key, weights, weights, scale, 0, 0)
    assert npu_quant_lightning_indexer(*call, sparse_count=2, sparse_mode=0).flatten().tolist() == [1, 0]


def test_gradients_of_scores_are_those_of_finite_differences() -> None:
    def function(q: Tensor, k: Tensor, w: Tensor) -> Tensor:
        return npu_lightning_indexer(q, k, w, sparse_count=3, sparse_mode=0, return_value=True)[1]

    assert torch.autograd.gradcheck(function, (draw(1, 2, 2, 3), draw(1, 4, 1, 3, seed=1), draw(1, 2, 2, seed=2)))


def kl_loss(scores: Tensor, target: Tensor) -> Tensor:
    return (target * (target.log() - scores.log_softmax(-1))).sum()


def test_the_sparse_loss_is_the_distance_between_two_distributions_and_has_its_gradients() -> None:
    q, k, qi, ki, w = (
        draw(*shape, seed=seed)
        for seed, shape in enumerate([(1, 1, 2, 3), (1, 3, 1, 3), (1, 1, 2, 3), (1, 3, 1, 3), (1, 1, 2)])
    )
    scores = torch.einsum("g,gs->s", w[0, 0], torch.relu(qi[0, 0] @ ki[0, :, 0].T))[[2, 0]]
    attention = (q[0, 0] @ k[0, [2, 0], 0].T * 0.5).detach()
    wanted = kl_loss(scores, attention.softmax(-1).mean(0))
    maximum, total = attention.amax(-1), attention.sub(attention.amax(-1, keepdim=True)).exp().sum(-1)
    found = npu_sparse_lightning_indexer_grad_kl_loss(
        q,
        k,
        qi,
        ki,
        w,
        torch.tensor([2, 0, -1]).reshape(1, 1, 3),
        *(each.view(1, 1, 1, 2) for each in (maximum, total)),
        0.5,
    )
    torch.testing.assert_close(found, (*torch.autograd.grad(wanted, (qi, ki, w)), wanted.detach().reshape(1)))


def test_the_dense_loss_has_the_gradients_of_the_distance() -> None:
    call = EXAMPLES["npu_dense_lightning_indexer_grad_kl_loss"](torch.Generator().manual_seed(1))
    q, k, qi, ki, w, *statistics, scale = (each.double() if isinstance(each, Tensor) else each for each in call.args)
    found = npu_dense_lightning_indexer_grad_kl_loss(q, k, qi, ki, w, *statistics, scale)
    qi, ki, w = (each.requires_grad_() for each in (qi, ki, w))
    shown = torch.ones(4, 6).tril(2).bool()
    scores = torch.einsum("bqg,bqgk->bqk", w, torch.relu(torch.einsum("bqgd,bknd->bqgk", qi, ki)))
    weights = torch.exp(torch.einsum("bqhd,bkhd->bhqk", q, k) * scale - statistics[0]) / statistics[1]
    p = weights.mean(1) * shown
    # dKL / dI is softmax(I) - p, whatever p sums to
    grad = (scores.masked_fill(~shown, -math.inf).softmax(-1) - p).detach()
    torch.testing.assert_close(found[:3], torch.autograd.grad(scores, (qi, ki, w), grad), rtol=1e-5, atol=1e-7)


def test_sinks_in_the_loss_are_refused() -> None:
    call = EXAMPLES["npu_sparse_lightning_indexer_grad_kl_loss"](torch.Generator())
    with pytest.raises(NotImplementedError, match="sinks"):
        npu_sparse_lightning_indexer_grad_kl_loss(*call.args, **call.kwargs, sinks=torch.ones(4))


def test_bytes_that_are_numbers_of_another_format_are_refused() -> None:
    call = EXAMPLES["npu_quant_lightning_indexer"](torch.Generator())
    with pytest.raises(NotImplementedError, match="key_dtype"):
        npu_quant_lightning_indexer(*call.args, **call.kwargs, key_dtype=290)
