"""Hyper-connections against independent definitions, by hand, and by finite differences."""

from __future__ import annotations

import torch
from torch import Tensor

from pytest_msprobe.extensions.npu_operators.recurrent.hyper_connections import (
    npu_mhc_post,
    npu_mhc_pre,
    npu_mhc_pre_backward,
    npu_mhc_sinkhorn,
)
from tests.support.cann.operators import hyper_connections


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def test_streams_without_weights_go_in_by_half_and_come_out_whole() -> None:
    x = torch.tensor([[[1.0, 2.0], [3.0, 4.0]]])
    h_in, h_post, h_res, *saved = npu_mhc_pre(x, torch.zeros(8, 4), torch.ones(3), torch.zeros(8), hc_eps=0.0)
    assert h_in.tolist() == [[2, 3]]
    assert h_post.tolist() == [[1, 1]]
    assert h_res is not None
    assert not h_res.any()
    assert saved == [None] * 3


def test_without_a_third_alpha_streams_are_not_mixed() -> None:
    h_res = npu_mhc_pre(draw(2, 2, 3), draw(4, 6, seed=1), torch.ones(2), torch.zeros(4))[2]
    assert h_res is None


def test_streams_are_mixed_by_columns() -> None:
    x, mixing = torch.tensor([[[1.0], [10.0]]]), torch.tensor([[[1.0, 2.0], [3.0, 4.0]]])
    y = npu_mhc_post(x, mixing, torch.tensor([[100.0]]), torch.tensor([[1.0, 2.0]]))
    assert y.flatten().tolist() == [1 + 30 + 100, 2 + 40 + 200]


def test_sinkhorn_makes_rows_and_columns_sum_to_one() -> None:
    y, *_ = npu_mhc_sinkhorn(draw(3, 4, 4))
    torch.testing.assert_close(y.sum(-1), torch.ones(3, 4, dtype=torch.float64), atol=1e-4, rtol=0)
    torch.testing.assert_close(y.sum(-2), torch.ones(3, 4, dtype=torch.float64), atol=1e-4, rtol=0)


def test_gradients_of_hyper_connections_are_those_of_finite_differences() -> None:
    pre = [draw(2, 2, 3), draw(8, 6, seed=1), draw(3, seed=2), draw(8, seed=3), draw(2, 3, seed=4)]
    leaves = [each.requires_grad_() for each in pre]

    def results(x: Tensor, phi: Tensor, alpha: Tensor, bias: Tensor, gamma: Tensor) -> tuple[Tensor, ...]:
        h_in, h_post, h_res, *_ = npu_mhc_pre(x, phi, alpha, bias, gamma=gamma)
        assert h_res is not None
        return h_in, h_post, h_res

    assert torch.autograd.gradcheck(results, leaves, fast_mode=True)
    post = [draw(2, 2, 3), draw(2, 2, 2, seed=1), draw(2, 3, seed=2), draw(2, 2, seed=3)]
    assert torch.autograd.gradcheck(npu_mhc_post, [each.requires_grad_() for each in post], fast_mode=True)
    x = draw(2, 3, 3).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: npu_mhc_sinkhorn(x, num_iters=3)[0], [x], fast_mode=True)


def test_gradients_from_saved_results_are_those_of_autograd() -> None:
    leaves = [draw(2, 2, 3), draw(8, 6, seed=1), draw(3, seed=2), draw(8, seed=3), draw(2, 3, seed=4)]
    x, phi, alpha, bias, gamma = (each.requires_grad_() for each in leaves)
    h_in, h_post, h_res, inv_rms, h_mix, h_pre = npu_mhc_pre(x, phi, alpha, bias, gamma=gamma, out_flag=1)
    assert h_res is not None
    grads = [draw(*result.shape, seed=9) for result in (h_in, h_post, h_res)]
    expected = torch.autograd.grad((h_in, h_post, h_res), (x, phi, alpha, bias, gamma), grads)
    saved = [each.detach() for each in (inv_rms, h_mix, h_pre, h_post) if each is not None]
    found = npu_mhc_pre_backward(x.detach(), phi.detach(), alpha.detach(), *grads, *saved, gamma=gamma.detach())
    torch.testing.assert_close(found, expected)


def test_a_cards_own_gradient_of_sinkhorn_is_that_of_the_definition() -> None:
    x, grad = draw(3, 4, 4).requires_grad_(), draw(3, 4, 4, seed=1)
    (expected,) = torch.autograd.grad(npu_mhc_sinkhorn(x, num_iters=4)[0], x, grad)
    _, norm, total = hyper_connections.npu_mhc_sinkhorn(x.detach(), num_iters=4, out_flag=1)
    assert norm is not None
    assert total is not None
    found = hyper_connections.npu_mhc_sinkhorn_backward(grad, norm, total)
    torch.testing.assert_close(found, expected, atol=1e-7, rtol=1e-5)
