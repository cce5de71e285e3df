"""LSTM forward and backward, by the definition of the primitive; shapes show all that it was made with."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from pytest_msprobe.extensions.mindspore.kernels.kernel_call import KernelCall
from pytest_msprobe.extensions.mindspore.primitives import recurrent


def lstm(call: KernelCall) -> tuple[Tensor, Tensor, Tensor]:
    """Return LSTM: the outputs and the last states."""
    inputs, settings = _made(call, call.shape, tuple(call.results[1].shape))
    return recurrent.lstm(*inputs, **settings)


def lstm_gradient(call: KernelCall) -> tuple[Tensor, ...]:
    """Return LSTMGrad: the gradients of the inputs, the states and the weights."""
    state = tuple(call.results[1].shape)
    steps, batch = call.shape[:2]
    outputs = steps, batch, state[0] * state[2]
    inputs, settings = _made(call, outputs, state)
    arriving = [call.tensor(7, *outputs), call.tensor(8, *state), call.tensor(9, *state)]
    with torch.enable_grad():
        leaves = [tensor.detach().requires_grad_() for tensor in inputs]
        return torch.autograd.grad(recurrent.lstm(*leaves, **settings), leaves, arriving)


def _made(call: KernelCall, outputs: tuple[int, ...], state: tuple[int, ...]) -> tuple[list[Tensor], dict[str, Any]]:
    """Return what an LSTM whose outputs and states have these shapes takes, and what it was made with."""
    directions, _, hidden = state
    x, weights = call.tensor(0), call.tensor(3)
    x = call.tensor(0, *outputs[:2], x.numel() // math.prod(outputs[:2]))
    matrices = directions * 4 * hidden * (x.shape[2] + hidden)
    settings = {
        "input_size": x.shape[2],
        "hidden_size": hidden,
        "num_layers": 1,
        "has_bias": weights.numel() > matrices,
        "bidirectional": directions == 2,
    }
    return [x, call.tensor(1, *state), call.tensor(2, *state), weights], settings
