"""Recurrent layers in one primitive, by torch's: what differs is how their weights are laid out."""

from __future__ import annotations

import torch
from torch import Tensor


def lstm(
    x: Tensor,
    h: Tensor,
    c: Tensor,
    weights: Tensor,
    *,
    input_size: int,
    hidden_size: int,
    num_layers: int,
    has_bias: bool,
    bidirectional: bool,
    proj_size: int = 0,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the outputs of an LSTM for inputs (T, N, I), and its last states.

    ``weights`` are flat: the matrices of the inputs, those of the states, then the biases, each for both directions; a
    CPU takes the sum of a gate's two biases. The other outputs are what the gradient's kernel needs, and no device
    promises them.
    """
    if num_layers != 1 or proj_size:
        raise NotImplementedError("LSTM of several layers or with a projection has no golden definition")
    directions, gates = 1 + bidirectional, 4 * hidden_size
    sizes = [gates * input_size, gates * hidden_size]
    sizes += [gates] * ((weights.numel() // directions - sum(sizes)) // gates)
    parts = torch.split(weights.reshape(-1), [size for size in sizes for _ in range(directions)])
    biases = len(sizes) - 2 if has_bias else 0
    if bidirectional and biases == 2:
        raise NotImplementedError("LSTM in both directions with two biases has no golden definition")
    flat: list[Tensor] = []
    for direction in range(directions):
        w_ih, w_hh, *b = parts[direction::directions]
        flat += [w_ih.reshape(gates, -1), w_hh.reshape(gates, -1), *b]
        flat += map(torch.zeros_like, b[: biases % 2])
    y, last_h, last_c = torch.lstm(x, [h, c], flat, bool(biases), 1, 0.0, False, bidirectional, False)
    return y, last_h, last_c


def dynamic_rnn(
    x: Tensor,
    w: Tensor,
    b: Tensor,
    seq_length: None = None,
    init_h: Tensor | None = None,
    init_c: Tensor | None = None,
    *,
    cell_type: str,
    direction: str,
    use_peephole: bool,
    cell_clip: float,
    num_proj: int,
    activation: str,
    forget_bias: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the outputs of an LSTM for inputs (T, N, I), and its states after each step.

    ``w`` (I + H, 4H) and ``b`` have the gates in the order input, cell, forget, output.
    """
    plain = (cell_type, direction, activation) == ("LSTM", "UNIDIRECTIONAL", "tanh")
    if not plain or use_peephole or cell_clip > 0 or num_proj or seq_length is not None:
        raise NotImplementedError("DynamicRNN other than a plain LSTM has no golden definition")
    hidden = b.numel() // 4
    h, c = (
        x.new_zeros(x.shape[1], hidden) if state is None else state.reshape(-1, hidden) for state in (init_h, init_c)
    )
    outputs, cells = [], []
    for step in x:
        i, j, f, o = (torch.cat([step, h], -1) @ w + b).chunk(4, -1)
        c = torch.sigmoid(f + forget_bias) * c + torch.sigmoid(i) * torch.tanh(j)
        h = torch.sigmoid(o) * torch.tanh(c)
        outputs.append(h)
        cells.append(c)
    y = torch.stack(outputs)
    return y, y.clone(), torch.stack(cells)


def dynamic_gru(
    x: Tensor,
    weight_input: Tensor,
    weight_hidden: Tensor,
    bias_input: Tensor | None = None,
    bias_hidden: Tensor | None = None,
    seq_length: None = None,
    init_h: Tensor | None = None,
    *,
    direction: str,
    cell_clip: float,
    num_proj: int,
    activation: str,
    gate_order: str,
    reset_after: bool,
) -> tuple[Tensor, Tensor]:
    """Return the outputs of a GRU for inputs (T, N, I), twice, as it gives them.

    The weights (I, 3H) and (H, 3H) have the gates in the order that ``gate_order`` says: reset, update (z), new (h).
    """
    is_plain = (direction, activation) == ("UNIDIRECTIONAL", "tanh")
    if not is_plain or cell_clip > 0 or num_proj or not reset_after or seq_length is not None:
        raise NotImplementedError("DynamicGRUV2 other than a plain GRU has no golden definition")
    hidden = weight_hidden.shape[0]
    h = x.new_zeros(x.shape[1], hidden) if init_h is None else init_h
    outputs = []
    for step in x:
        of_input = _gates(step @ weight_input, bias_input, gate_order)
        of_state = _gates(h @ weight_hidden, bias_hidden, gate_order)
        r, z = (torch.sigmoid(of_input[gate] + of_state[gate]) for gate in "rz")
        n = torch.tanh(of_input["h"] + r * of_state["h"])
        h = (1 - z) * n + z * h
        outputs.append(h)
    y = torch.stack(outputs)
    return y, y.clone()


def _gates(product: Tensor, bias: Tensor | None, order: str) -> dict[str, Tensor]:
    sums = product if bias is None else product + bias
    return dict(zip(order, sums.chunk(3, -1), strict=True))
