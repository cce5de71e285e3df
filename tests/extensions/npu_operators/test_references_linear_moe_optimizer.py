"""Matrix products, convolutions, expert routing and optimizer steps against other computations."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from pytest_msprobe.extensions.npu_operators.experts.moe import npu_moe_gating_top_k_softmax
from pytest_msprobe.extensions.npu_operators.layers.convolution import npu_conv2d, npu_conv3d, npu_conv_transpose2d
from pytest_msprobe.extensions.npu_operators.layers.training import npu_apply_adam, npu_apply_adam_w
from pytest_msprobe.extensions.npu_operators.matmul.permuted_matmul import (
    matmul_backward,
    npu_linear,
    npu_linear_backward,
)


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def close(actual: Tensor, expected: object, rtol: float = 1e-12) -> None:
    np.testing.assert_allclose(actual.detach().numpy(), np.asarray(expected), rtol=rtol, atol=1e-13)


def test_linear_works_with_and_without_bias() -> None:
    x, weight, bias = draw(2, 3, 4), draw(5, 4, seed=1), draw(5, seed=2)
    product = np.einsum("abi,oi->abo", x.numpy(), weight.numpy())
    close(npu_linear(x, weight), product)
    close(npu_linear(x, weight, bias), product + bias.numpy())


@pytest.mark.parametrize("leading", [(3,), (2, 3)])
def test_linear_backward_takes_any_number_of_leading_dimensions(leading: tuple[int, ...]) -> None:
    grad, x, weight = draw(*leading, 5), draw(*leading, 4, seed=1), draw(5, 4, seed=2)
    grad_x, grad_weight = npu_linear_backward(grad, x, weight)
    close(grad_x, np.einsum("...o,oi->...i", grad.numpy(), weight.numpy()))
    close(grad_weight, np.einsum("ro,ri->oi", grad.numpy().reshape(-1, 5), x.numpy().reshape(-1, 4)))


@pytest.mark.parametrize("mask", [(True, True), (True, False), (False, True), (False, False)])
@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((4,), (4,)),
        ((3, 4), (4,)),
        ((4,), (4, 5)),
        ((3, 4), (4, 5)),
        ((2, 3, 4), (4,)),
        ((4,), (2, 4, 5)),
        ((2, 3, 4), (4, 5)),
        ((2, 1, 3, 4), (6, 4, 5)),
    ],
)
def test_matmul_backward_serves_every_rank_and_mask(
    a: tuple[int, ...], b: tuple[int, ...], mask: tuple[bool, bool]
) -> None:
    left, right = draw(*a).requires_grad_(), draw(*b, seed=1).requires_grad_()
    out = left @ right
    grad = draw(*out.shape, seed=2)
    expected = torch.autograd.grad(out, (left, right), grad)
    actual = matmul_backward(grad, left.detach(), right.detach(), mask)
    for wanted, got, want in zip(mask, actual, expected, strict=True):
        if wanted:
            assert got is not None
            assert got.shape == want.shape
            close(got, want)
        else:
            assert got is None


def test_convolutions_take_their_parameters_in_the_operators_order() -> None:
    x, weight, bias = draw(1, 4, 7, 8), draw(6, 2, 3, 2, seed=1), draw(6, seed=2)
    expected = torch.nn.Conv2d(4, 6, (3, 2), (2, 1), (1, 0), (1, 2), 2, dtype=torch.float64)
    with torch.no_grad():
        expected.weight.copy_(weight)
        expected.bias.copy_(bias)  # type: ignore[union-attr]
    close(npu_conv2d(x, weight, bias, [2, 1], [1, 0], [1, 2], 2), expected(x).detach())
    back = torch.nn.ConvTranspose2d(6, 4, (3, 2), (2, 1), (1, 0), (1, 0), 2, False, (1, 1), dtype=torch.float64)
    with torch.no_grad():
        back.weight.copy_(weight)
    y = draw(1, 6, 4, 5, seed=3)
    close(npu_conv_transpose2d(y, weight, None, [1, 0], [1, 0], [2, 1], [1, 1], 2), back(y).detach())
    ones = torch.ones(1, 1, 2, 2, 2, dtype=torch.float64)
    cube = draw(1, 1, 3, 3, 3, seed=4)
    corner = npu_conv3d(cube, ones, None, [1, 1, 1], [0, 0, 0], [1, 1, 1], 1)[0, 0, 0, 0, 0]
    close(corner, cube[0, 0, :2, :2, :2].sum())


@pytest.mark.parametrize("leading", [(5,), (2, 3)])
def test_moe_gating_takes_two_and_three_dimensions(leading: tuple[int, ...]) -> None:
    x = draw(*leading, 6)
    y, expert_idx, row_idx = npu_moe_gating_top_k_softmax(x, k=3)
    rows = x.numpy().reshape(-1, 6)
    probabilities = np.exp(rows) / np.exp(rows).sum(-1, keepdims=True)
    order = np.argsort(-probabilities, axis=-1, kind="stable")[:, :3]
    close(y.reshape(-1, 3), np.take_along_axis(probabilities, order, 1))
    close(expert_idx.reshape(-1, 3), order)
    expected_rows = [[column * len(rows) + row for column in range(3)] for row in range(len(rows))]
    close(row_idx.reshape(-1, 3), expected_rows)
    assert y.shape == expert_idx.shape == row_idx.shape == (*leading, 3)
    assert expert_idx.dtype is row_idx.dtype is torch.int32


def test_moe_gating_prefers_the_lower_expert_among_equals() -> None:
    assert npu_moe_gating_top_k_softmax(torch.zeros(1, 5), k=3)[1].tolist() == [[0, 1, 2]]


def test_moe_gating_gives_finished_rows_the_number_of_experts() -> None:
    finished = torch.tensor([[False, True], [True, False]])
    x = torch.arange(12.0).reshape(2, 2, 3)
    y, expert_idx, _ = npu_moe_gating_top_k_softmax(x, finished, 2)
    assert expert_idx.tolist() == [[[2, 1], [3, 3]], [[3, 3], [2, 1]]]
    assert y.gt(0).all()


def test_moe_gating_picks_one_expert_by_default() -> None:
    assert npu_moe_gating_top_k_softmax(draw(4, 8))[0].shape == (4, 1)


def adam_steps(optimizer: type[torch.optim.Optimizer], steps: int, **options: object) -> list[Tensor]:
    """Return the parameter, m, v and max v of torch's own optimizer after ``steps`` steps."""
    parameter = draw(7).requires_grad_()
    torch_optimizer = optimizer([parameter], **options)  # type: ignore[arg-type]
    for step in range(steps):
        parameter.grad = draw(7, seed=10 + step)
        torch_optimizer.step()
    state = torch_optimizer.state[parameter]
    extra = state.get("max_exp_avg_sq", torch.zeros(7, dtype=torch.float64))
    return [tensor.detach().clone() for tensor in (parameter, state["exp_avg"], state["exp_avg_sq"], extra)]


@pytest.mark.parametrize("amsgrad", [False, True])
@pytest.mark.parametrize("maximize", [False, True])
def test_apply_adam_w_makes_the_step_of_torch_adam_w(amsgrad: bool, maximize: bool) -> None:
    options = {"lr": 0.01, "weight_decay": 0.1, "betas": (0.8, 0.7), "amsgrad": amsgrad, "maximize": maximize}
    var, m, v, largest = adam_steps(torch.optim.AdamW, 3, **options)
    expected = adam_steps(torch.optim.AdamW, 4, **options)
    out = npu_apply_adam_w(
        0.8**3, 0.7**3, 0.01, 0.1, 0.8, 0.7, 1e-8, draw(7, seed=13), largest, amsgrad, maximize, out=(var, m, v)
    )
    for got, written, want in zip(out, (var, m, v), expected, strict=False):
        assert got is written
        close(got, want, rtol=1e-10)


def test_apply_adam_w_with_amsgrad_needs_the_running_maximum() -> None:
    state = (draw(2), draw(2), draw(2).abs())
    with pytest.raises(ValueError, match="needs max_grad_norm"):
        npu_apply_adam_w(0.9, 0.99, 0.1, 0.0, 0.9, 0.99, 1e-8, draw(2), None, True, False, out=state)


@pytest.mark.parametrize("apply", [npu_apply_adam, npu_apply_adam_w])
def test_optimizer_steps_need_their_state(apply: object) -> None:
    with pytest.raises(ValueError, match=r"needs its state as out=\(var, m, v\)"):
        apply(0.9, 0.99, 0.1, 0.9, 0.9, 0.99, 1e-8, draw(2))  # type: ignore[operator]


def test_apply_adam_makes_the_step_of_torch_adam_but_for_where_epsilon_stands() -> None:
    options = {"lr": 0.01, "betas": (0.8, 0.7), "eps": 0.0}
    var, m, v, _ = adam_steps(torch.optim.Adam, 3, **options)
    expected = adam_steps(torch.optim.Adam, 4, **options)
    out = npu_apply_adam(0.8**4, 0.7**4, 0.01, 0.8, 0.7, 0.0, draw(7, seed=13), False, False, out=(var, m, v))
    for got, written, want in zip(out, (var, m, v), expected, strict=False):
        assert got is written
        close(got, want, rtol=1e-10)


def test_apply_adam_with_nesterov_looks_one_step_ahead() -> None:
    var, m, v, g = (draw(5, seed=i).abs().numpy() for i in range(4))
    lr, b1, b2, eps, p1, p2 = 0.1, 0.9, 0.95, 0.03, 0.9**2, 0.95**2
    m_new = m + (b1 - 1) * (m - g)
    v_new = v + (b2 - 1) * (v - g * g)
    rate = lr * np.sqrt(1 - p2) / (1 - p1)
    expected = var - rate * (m_new * b1 + (1 - b1) * g) / (eps + np.sqrt(v_new))
    state = tuple(torch.from_numpy(a.copy()) for a in (var, m, v))
    out = npu_apply_adam(p1, p2, lr, b1, b2, eps, torch.from_numpy(g), False, True, out=state)  # type: ignore[arg-type]
    for got, want in zip(out, (expected, m_new, v_new), strict=True):
        close(got, want)
