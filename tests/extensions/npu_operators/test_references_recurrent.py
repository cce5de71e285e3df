"""The LSTM and the GRU against independent definitions, torch's own, and finite differences."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from pytest_msprobe.extensions.npu_operators.recurrent.gated_states import npu_gru, npu_gru_backward
from pytest_msprobe.extensions.npu_operators.recurrent.lstm import (
    npu_lstm,
    npu_lstm_cell,
    npu_lstm_cell_backward,
    npu_lstm_data,
)
from tests.support.cann.examples.recurrent import EXAMPLES


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


LSTM = (draw(4, 2, 3), draw(5, 8, seed=1), draw(8, seed=2))
STATES = (draw(1, 2, 2, seed=3), draw(1, 2, 2, seed=4))
SWITCHES = (True, 1, 0.0, True, False, False, False, False)


def known(results: tuple[Tensor | None, ...]) -> list[Tensor]:
    return [result for result in results if result is not None]


def lstm(x: Tensor, weight: Tensor, bias: Tensor, h: Tensor, c: Tensor) -> tuple[Any, ...]:
    return npu_lstm(x, weight, bias, torch.zeros(0), h, c, *SWITCHES)


def test_an_lstm_is_torchs() -> None:
    x, weight, bias = LSTM
    y, h, c, *_ = lstm(x, weight, bias, *STATES)
    parameters = (weight[:3].T, weight[3:].T, bias, torch.zeros_like(bias))
    expected, last_h, last_c = torch._VF.lstm(x, STATES, parameters, True, 1, 0.0, True, False, False)  # type: ignore[attr-defined]
    torch.testing.assert_close((y, h[-1:], c[-1:]), (expected, last_h, last_c))


def test_a_gru_is_torchs() -> None:
    x, h, w, v, b, a = (draw(*s, seed=i) for i, s in enumerate([(4, 2, 3), (1, 2, 2), (3, 6), (2, 6), (6,), (6,)]))
    y, hidden, *_ = npu_gru(x, h, w, v, b, a, torch.tensor([4]), True, 1, 0.0, True, False, False)
    expected, last = torch._VF.gru(x, h, (w.T, v.T, b, a), True, 1, 0.0, True, False, False)  # type: ignore[attr-defined]
    torch.testing.assert_close((y, hidden[-1:]), (expected, last))


def test_an_lstm_cell_without_bias_and_state_squashes_what_it_is_given() -> None:
    zero, one = torch.zeros(1, 1), torch.ones(1, 1)
    y, h, c, i, *_ = known(npu_lstm_cell(zero, torch.ones(1, 4), torch.ones(1, 4), zero, one))
    assert (float(c), float(i)) == (0.5, 0.5)
    assert float(h) == pytest.approx(0.5 * 0.46211715726)
    assert y.shape == (1, 1, 1)


def test_one_bias_alone_is_refused() -> None:
    with pytest.raises(ValueError, match="both biases"):
        npu_lstm_cell(*(torch.zeros(1, n) for n in (1, 4, 4, 1, 1)), torch.zeros(4))


def test_the_state_outlasts_steps_that_a_sequence_lacks() -> None:
    x, weight, bias = LSTM
    present = torch.ones(4, 2, 2, dtype=torch.float64)
    present[2:, 1] = 0
    sizes, switches = torch.tensor([2, 2, 1, 1]), (*SWITCHES[:6], True, False)
    results = npu_lstm_data(x, sizes, weight, bias, present, *STATES, *switches)
    y, h, _ = known(results)
    assert torch.equal(h[3, 1], h[1, 1])
    assert not y[2:, 1].any()
    assert results[3:] == (None,) * 5


def test_only_the_last_state_of_a_layer_has_a_gradient() -> None:
    x, weight, bias = LSTM
    leaf = x.clone().requires_grad_()
    _, h, *_ = lstm(leaf, weight, bias, *STATES)
    (grad,) = torch.autograd.grad(h[:-1].sum(), leaf, materialize_grads=True, retain_graph=True)
    assert not grad.any()
    (grad,) = torch.autograd.grad(h[-1].sum(), leaf)
    assert grad.any()


def test_gradients_of_recurrent_layers_are_those_of_finite_differences() -> None:
    leaves = [tensor.clone().requires_grad_() for tensor in (*LSTM, *STATES)]
    assert torch.autograd.gradcheck(lambda *given: lstm(*given)[0], leaves, fast_mode=True)
    shapes = [(3, 2, 3), (1, 2, 2), (3, 6), (2, 6), (6,), (6,)]
    leaves = [draw(*shape, seed=i).requires_grad_() for i, shape in enumerate(shapes)]
    assert torch.autograd.gradcheck(
        lambda *given: npu_gru(*given, leaves[0], True, 1, 0.0, True, False, False)[0], leaves, fast_mode=True
    )


def test_gradients_of_a_cell_follow_from_its_gates() -> None:
    leaves = [
        draw(*s, seed=i).requires_grad_() for i, s in enumerate([(2, 3), (3, 8), (2, 8), (2, 2), (2, 2), (8,), (8,)])
    ]
    results = npu_lstm_cell(*leaves)
    grads = [draw(*shape, seed=9) for shape in ((1, 2, 2), (2, 2), (2, 2))]
    expected = torch.autograd.grad(results[:3], leaves, grads)
    saved = [each.detach() for each in results]
    found = npu_lstm_cell_backward(*grads, *(leaf.detach() for leaf in leaves[:5]), *saved)
    order = (0, 1, 2, 5, 6, 3, 4)
    torch.testing.assert_close(found, tuple(expected[at] for at in order))


def test_no_incoming_gradient_gives_none() -> None:
    call = EXAMPLES["npu_gru_backward"](torch.Generator().manual_seed(1))
    for grad in npu_gru_backward(None, None, *call.args[2:]):
        assert not grad.any()
