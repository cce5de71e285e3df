"""The cells of LSTM and GRU, which torch asks other devices than its own for as one kernel each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def lstm_cell(
    input_gates: Tensor,
    hidden_gates: Tensor,
    cx: Tensor,
    input_bias: Tensor | None = None,
    hidden_bias: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the new hidden and cell states, and the gates for the backward pass."""
    i, f, g, o = (_sum(input_gates, input_bias) + _sum(hidden_gates, hidden_bias)).chunk(4, 1)
    i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
    cy = f * cx + i * g
    return o * cy.tanh(), cy, torch.cat((i, f, g, o), 1)


def lstm_cell_backward(
    grad_hy: Tensor | None, grad_cy: Tensor | None, cx: Tensor, cy: Tensor, workspace: Tensor, has_bias: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return the gradients of the gates, of the cell state and of a bias."""
    i, f, g, o = workspace.chunk(4, 1)
    through_h = torch.zeros_like(cy) if grad_hy is None else grad_hy
    tanh = cy.tanh()
    through_c = _sum(through_h * o * (1 - tanh * tanh), grad_cy)
    gates = (
        through_c * g * i * (1 - i),
        through_c * cx * f * (1 - f),
        through_c * i * (1 - g * g),
        through_h * tanh * o * (1 - o),
    )
    of_gates = torch.cat(gates, 1)
    return of_gates, through_c * f, of_gates.sum(0) if has_bias else None


def gru_cell(
    input_gates: Tensor,
    hidden_gates: Tensor,
    hx: Tensor,
    input_bias: Tensor | None = None,
    hidden_bias: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the new hidden state, and what the backward pass needs."""
    of_input, of_hidden = _sum(input_gates, input_bias).chunk(3, 1), _sum(hidden_gates, hidden_bias).chunk(3, 1)
    r, z = (of_input[0] + of_hidden[0]).sigmoid(), (of_input[1] + of_hidden[1]).sigmoid()
    n = (of_input[2] + r * of_hidden[2]).tanh()
    return n + z * (hx - n), torch.cat((r, z, n, hx, of_hidden[2]), 1)


def gru_cell_backward(
    grad_hy: Tensor, workspace: Tensor, has_bias: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None]:
    """Return the gradients of both kinds of gates, of the hidden state and of both biases."""
    r, z, n, hx, hidden_n = workspace.chunk(5, 1)
    of_z, of_n = grad_hy * (hx - n) * z * (1 - z), grad_hy * (1 - z) * (1 - n * n)
    of_r = of_n * hidden_n * r * (1 - r)
    of_input, of_hidden = torch.cat((of_r, of_z, of_n), 1), torch.cat((of_r, of_z, of_n * r), 1)
    biases = (of_input.sum(0), of_hidden.sum(0)) if has_bias else (None, None)
    return of_input, of_hidden, grad_hy * z, *biases


def _sum(gates: Tensor, other: Tensor | None) -> Tensor:
    return gates if other is None else gates + other


COMPUTED: dict[str, Callable[..., Any]] = {
    "_thnn_fused_lstm_cell": lstm_cell,
    "_thnn_fused_lstm_cell_backward_impl": lstm_cell_backward,
    "_thnn_fused_gru_cell": gru_cell,
    "_thnn_fused_gru_cell_backward": gru_cell_backward,
}
