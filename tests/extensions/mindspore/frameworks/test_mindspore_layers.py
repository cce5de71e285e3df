"""Definitions of MindSpore's primitives that no kernel at hand computes, next to PyTorch's own layers."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from pytest_msprobe.extensions.mindspore.primitives import layers, recurrent

GRU_SETTINGS = {"direction": "UNIDIRECTIONAL", "cell_clip": -1.0, "num_proj": 0, "activation": "tanh"}
LSTM_SETTINGS = GRU_SETTINGS | {"cell_type": "LSTM", "use_peephole": False}


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def weights(layer: nn.RNNBase) -> list[Tensor]:
    return [each.detach() for each in layer._flat_weights]


@pytest.fixture(autouse=True)
def same_weights() -> None:
    torch.manual_seed(0)


def reordered(rows: Tensor, order: list[int]) -> Tensor:
    gates = rows.chunk(len(order))
    return torch.cat([gates[gate] for gate in order])


@pytest.mark.parametrize("forget_bias", [0.0, 1.0])
def test_an_lstm_of_npus_is_torch_s_with_its_gates_in_another_order(forget_bias: float) -> None:
    layer = nn.LSTM(5, 7).double()
    w_ih, w_hh, b_ih, b_hh = (reordered(each, [0, 2, 1, 3]) for each in weights(layer))
    x, h, c = drawn(4, 3, 5), drawn(1, 3, 7, seed=1), drawn(1, 3, 7, seed=2)
    bias = b_ih + b_hh
    bias[14:21] -= forget_bias
    y, states, cells = recurrent.dynamic_rnn(
        x, torch.cat([w_ih, w_hh], 1).T, bias, None, h, c, forget_bias=forget_bias, **LSTM_SETTINGS
    )
    expected, (last, last_cell) = layer(x, (h, c))
    torch.testing.assert_close(y, expected)
    torch.testing.assert_close((states[-1], cells[-1]), (last[0], last_cell[0]))


@pytest.mark.parametrize(("order", "gates"), [("rzh", [0, 1, 2]), ("zrh", [1, 0, 2])])
def test_a_gru_of_npus_is_torch_s_with_its_gates_in_the_order_that_it_is_made_with(
    order: str, gates: list[int]
) -> None:
    layer = nn.GRU(5, 7).double()
    w_ih, w_hh, b_ih, b_hh = (reordered(each, gates) for each in weights(layer))
    x, h = drawn(4, 3, 5), drawn(3, 7, seed=1)
    y, _ = recurrent.dynamic_gru(
        x, w_ih.T, w_hh.T, b_ih, b_hh, None, h, gate_order=order, reset_after=True, **GRU_SETTINGS
    )
    torch.testing.assert_close(y, layer(x, h[None])[0])


@pytest.mark.parametrize("biases", [0, 1, 2])
def test_an_lstm_takes_flat_weights_with_no_bias_with_the_sum_of_two_or_with_both(biases: int) -> None:
    layer = nn.LSTM(5, 7, bias=biases > 0).double()
    w_ih, w_hh, *b = weights(layer)
    flat = torch.cat([each.reshape(-1) for each in (w_ih, w_hh, *([sum(b)] if biases == 1 else b))])
    x, h, c = drawn(4, 3, 5), drawn(1, 3, 7, seed=1), drawn(1, 3, 7, seed=2)
    y, last, last_cell = recurrent.lstm(
        x,
        h,
        c,
        flat[:, None, None],
        input_size=5,
        hidden_size=7,
        num_layers=1,
        has_bias=biases > 0,
        bidirectional=False,
    )
    expected, states = layer(x, (h, c))
    torch.testing.assert_close((y, last, last_cell), (expected, *states))


@pytest.mark.parametrize("settings", [{"use_peephole": True}, {"cell_clip": 3.0}, {"direction": "BIDIRECTIONAL"}])
def test_an_lstm_of_npus_with_more_than_its_gates_has_no_definition(settings: dict[str, object]) -> None:
    with pytest.raises(NotImplementedError, match="no golden definition"):
        recurrent.dynamic_rnn(drawn(4, 3, 5), drawn(12, 28), drawn(28), forget_bias=0.0, **LSTM_SETTINGS | settings)


def test_instances_are_normalised_by_their_own_statistics() -> None:
    x, gamma, beta = drawn(2, 3, 4, 5), drawn(3, seed=1), drawn(3, seed=2)
    (found,) = layers.instance_norm(x, gamma, beta, beta, gamma, epsilon=1e-3)
    torch.testing.assert_close(found, torch.instance_norm(x, gamma, beta, None, None, True, 0.1, 1e-3, False))


def test_rms_norm_returns_one_over_the_root_mean_square_too() -> None:
    x, gamma = drawn(2, 3, 4), drawn(3, 4, seed=1)
    found, scale = layers.rms_norm(x, gamma, epsilon=1e-3)
    torch.testing.assert_close(found, nn.functional.rms_norm(x, (3, 4), gamma, 1e-3))
    torch.testing.assert_close(scale.flatten(), 1 / (x.square().mean((1, 2)) + 1e-3).sqrt())
