"""The NPU's LSTM and GRU, as numpy loops over steps and, backwards, over their derivatives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Array = npt.NDArray[np.float64]


def npu_lstm(
    input: Tensor,  # noqa: A002
    weight: Tensor,
    bias: Tensor,
    seq_mask: Tensor,
    h: Tensor,
    c: Tensor,
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
    flag_seq: bool,
    direction: bool,
) -> tuple[Tensor, ...]:
    mask = _array(seq_mask) if flag_seq else np.ones(1)
    steps = _lstm(*map(_array, (input, weight, bias, h[0], c[0])), mask, direction)
    return tuple(_as(np.stack([step[name] for step in steps]), input) for name in "yhcijfot")


def npu_lstm_data(
    input: Tensor,  # noqa: A002
    batch_sizes: Tensor,
    weight: Tensor,
    bias: Tensor,
    seq_mask: Tensor,
    h: Tensor,
    c: Tensor,
    *switches: Any,
) -> tuple[Tensor, ...]:
    return npu_lstm(input, weight, bias, seq_mask, h, c, *switches)


def npu_lstm_backward(
    grady: Tensor | None,
    gradh: Tensor | None,
    gradc: Tensor | None,
    input: Tensor,  # noqa: A002
    weight: Tensor,
    bias: Tensor,
    hx: Tensor,
    cx: Tensor,
    *saved: Tensor,
) -> tuple[Tensor, ...]:
    return _lstm_gradients((grady, gradh, gradc), (input, weight, bias, hx, cx), np.ones((len(input), 1, 1)), False)


def npu_lstm_data_backward(
    grady_opt: Tensor | None,
    gradh_opt: Tensor | None,
    gradc_opt: Tensor | None,
    input: Tensor,  # noqa: A002
    batch_sizes: Tensor,
    weight: Tensor,
    bias: Tensor,
    init_h: Tensor,
    init_c: Tensor,
    y: Tensor,
    h: Tensor,
    c: Tensor,
    i: Tensor,
    j: Tensor,
    f: Tensor,
    o: Tensor,
    tanhc: Tensor,
    flag_direction: bool,
) -> tuple[Tensor, ...]:
    mask = np.zeros((*input.shape[:2], 1))
    for step, present in enumerate(batch_sizes.tolist()):
        mask[step, :present] = 1
    return _lstm_gradients(
        (grady_opt, gradh_opt, gradc_opt), (input, weight, bias, init_h, init_c), mask, flag_direction
    )


def npu_lstm_cell(
    input: Tensor,  # noqa: A002
    w_ih: Tensor,
    w_hh: Tensor,
    h: Tensor,
    c: Tensor,
    b_ih: Tensor | None = None,
    b_hh: Tensor | None = None,
) -> tuple[Tensor, ...]:
    bias = torch.zeros(w_hh.shape[1]) if b_ih is None or b_hh is None else b_ih.double() + b_hh.double()
    weight = torch.cat((w_ih, w_hh))
    (step,) = _lstm(*map(_array, (input[None], weight, bias, h, c)), np.ones(1), False)
    results = {name: _as(step[name], input) for name in "yhcijfot"}
    return tuple(results[name] if name in "hc" else results[name][None] for name in "yhcijfot")


def npu_lstm_cell_backward(
    grady: Tensor | None,
    gradh: Tensor | None,
    gradc: Tensor | None,
    input: Tensor,  # noqa: A002
    w_ih: Tensor,
    w_hh: Tensor,
    h: Tensor,
    c: Tensor,
    y_output: Tensor,
    h_output: Tensor,
    c_output: Tensor,
    i: Tensor,
    j: Tensor,
    f: Tensor,
    o: Tensor,
    tanhc: Tensor,
) -> tuple[Tensor, ...]:
    step = dict(zip("ijfot", (_array(gate).reshape(h.shape) for gate in (i, j, f, o, tanhc)), strict=True))
    into_h = sum(_array(grad).reshape(h.shape) for grad in (grady, gradh) if grad is not None) + np.zeros(h.shape)
    into_c = np.zeros(h.shape) if gradc is None else _array(gradc).reshape(h.shape)
    gates, before = _lstm_step_back(step, _array(c), into_h, into_c)
    bias = _as(gates.sum(0), input)
    return (
        _as(gates @ _array(w_ih).T, input),
        _as(_array(input).T @ gates, w_ih),
        _as(_array(h).T @ gates, w_hh),
        bias,
        bias.clone(),
        _as(gates @ _array(w_hh).T, h),
        _as(before, c),
    )


def npu_gru(
    input: Tensor,  # noqa: A002
    hx: Tensor,
    weight_input: Tensor,
    weight_hidden: Tensor,
    bias_input: Tensor,
    bias_hidden: Tensor,
    seq_length: Tensor,
    *switches: Any,
) -> tuple[Tensor, ...]:
    steps = _gru(*map(_array, (input, _first(hx), weight_input, weight_hidden, bias_input, bias_hidden)))
    return tuple(_as(np.stack([step[name] for step in steps]), bias_input) for name in "hhzrna")


def npu_gru_backward(
    grady: Tensor | None,
    gradh: Tensor | None,
    input: Tensor,  # noqa: A002
    weight_input: Tensor,
    weight_hidden: Tensor,
    bias_input: Tensor,
    bias_hidden: Tensor,
    seq_length: Tensor,
    hx: Tensor,
    *saved: Tensor,
) -> tuple[Tensor, ...]:
    x, first, w, v, b, a = map(_array, (input, _first(hx), weight_input, weight_hidden, bias_input, bias_hidden))
    steps = _gru(x, first, w, v, b, a)
    grads = {name: np.zeros(like.shape) for name, like in zip("wvxba", (w, v, x, b, a), strict=True)}
    into = np.zeros_like(first) if gradh is None else _array(gradh)[-1]
    for at in reversed(range(len(x))):
        step, before = steps[at], steps[at - 1]["h"] if at else first
        into = into + (0 if grady is None else _array(grady)[at])
        new = into * (1 - step["z"]) * (1 - step["n"] ** 2)
        update = into * (before - step["n"]) * step["z"] * (1 - step["z"])
        reset = new * step["a"] * step["r"] * (1 - step["r"])
        of_input = np.concatenate((reset, update, new), -1)
        of_hidden = np.concatenate((reset, update, new * step["r"]), -1)
        grads["w"] += x[at].T @ of_input
        grads["v"] += before.T @ of_hidden
        grads["x"][at] = of_input @ w.T
        grads["b"] += of_input.sum(0)
        grads["a"] += of_hidden.sum(0)
        into = into * step["z"] + of_hidden @ v.T
    likes = (weight_input, weight_hidden, input, bias_input, bias_hidden)
    return *(_as(grads[name], like) for name, like in zip("wvxba", likes, strict=True)), _as(into.reshape(hx.shape), hx)


def _lstm(
    x: Array, weight: Array, bias: Array, h: Array, c: Array, mask: Array, backwards: bool
) -> Sequence[dict[str, Array]]:
    steps: list[dict[str, Array]] = [{} for _ in x]
    size = h.shape[-1]
    for at in reversed(range(len(x))) if backwards else range(len(x)):
        gates = np.concatenate((x[at], h), -1) @ weight + bias
        i, f, o = (_sigmoid(gates[:, part * size : (part + 1) * size]) for part in (0, 1, 3))
        j = np.tanh(gates[:, 2 * size : 3 * size])
        there = np.broadcast_to(mask[at] if len(mask) == len(x) and mask.ndim == 3 else mask, h.shape)
        cell = f * c + i * j
        squashed = np.tanh(cell)
        before = {"h0": h, "c0": c}
        h, c = np.where(there > 0, o * squashed, h), np.where(there > 0, cell, c)
        steps[at] = dict(before, y=h * there, h=h, c=c, i=i, j=j, f=f, o=o, t=squashed)
    return steps


def _lstm_step_back(step: dict[str, Array], c: Array, into_h: Array, into_c: Array) -> tuple[Array, Array]:
    """Return the gradients of a step's gates before their activation, side by side, and of the cell before it."""
    into_c = into_c + into_h * step["o"] * (1 - step["t"] ** 2)
    i = into_c * step["j"] * step["i"] * (1 - step["i"])
    f = into_c * c * step["f"] * (1 - step["f"])
    j = into_c * step["i"] * (1 - step["j"] ** 2)
    o = into_h * step["t"] * step["o"] * (1 - step["o"])
    return np.concatenate((i, f, j, o), -1), into_c * step["f"]


def _lstm_gradients(
    incoming: tuple[Tensor | None, ...], arguments: tuple[Tensor, ...], mask: Array, backwards: bool
) -> tuple[Tensor, ...]:
    x, weight, bias, h, c = map(_array, arguments)
    steps = _lstm(x, weight, bias, h[0], c[0], mask, backwards)
    y, of_h, of_c = (None if grad is None else _array(grad) for grad in incoming)
    order = list(range(len(x))) if backwards else list(reversed(range(len(x))))
    into_h, into_c = np.zeros_like(h[0]), np.zeros_like(c[0])
    grads = [np.zeros(like.shape) for like in (x, weight, bias)]
    for at in order:
        if at == len(x) - 1:
            into_h = into_h + (0 if of_h is None else of_h[-1])
            into_c = into_c + (0 if of_c is None else of_c[-1])
        there = np.broadcast_to(mask[at], into_h.shape)
        into_h = into_h + (0 if y is None else y[at] * there)
        gates, before = _lstm_step_back(steps[at], steps[at]["c0"], into_h * there, into_c * there)
        both = gates @ weight.T
        grads[0][at] = both[:, : x.shape[-1]]
        grads[1] += np.concatenate((x[at], steps[at]["h0"]), -1).T @ gates
        grads[2] += gates.sum(0)
        into_h, into_c = both[:, x.shape[-1] :] + into_h * (1 - there), before + into_c * (1 - there)
    grads += [into_h[None], into_c[None]]
    return tuple(_as(grad, like) for grad, like in zip(grads, arguments, strict=True))


def _first(hx: Tensor) -> Tensor:
    """Return the states (B, H) before the first step, which come with or without a dimension of their own."""
    return hx[0] if hx.dim() == 3 else hx


def _gru(x: Array, h: Array, w: Array, v: Array, b: Array, a: Array) -> Sequence[dict[str, Array]]:
    steps, size = [], h.shape[-1]
    for row in x:
        of_input, of_hidden = row @ w + b, h @ v + a
        r = _sigmoid(of_input[:, :size] + of_hidden[:, :size])
        z = _sigmoid(of_input[:, size : 2 * size] + of_hidden[:, size : 2 * size])
        hidden = of_hidden[:, 2 * size :]
        n = np.tanh(of_input[:, 2 * size :] + r * hidden)
        h = n + z * (h - n)
        steps.append({"h": h, "z": z, "r": r, "n": n, "a": hidden})
    return steps


def _sigmoid(x: Array) -> Array:
    return cast(Array, 1 / (1 + np.exp(-x)))


def _array(x: Tensor) -> Array:
    return cast(Array, x.detach().double().numpy())


def _as(x: Array, like: Tensor) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(x)).to(like.dtype)
