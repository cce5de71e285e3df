"""The NPU's LSTM and GRU, as numpy loops over steps and, backwards, over their derivatives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from tests.support.cann.operators.by_schema import Arguments, by_schema

Array = npt.NDArray[np.float64]


@by_schema
def npu_lstm(args: Arguments) -> tuple[Tensor, ...]:
    mask = _array(args.seq_mask) if args.flag_seq else np.ones(1)
    steps = _lstm(*map(_array, (args.input, args.weight, args.bias, args.h[0], args.c[0])), mask, args.direction)
    return tuple(_as(np.stack([step[name] for step in steps]), args.input) for name in "yhcijfot")


@by_schema
def npu_lstm_data(args: Arguments) -> tuple[Tensor, ...]:
    return npu_lstm(**{name: value for name, value in vars(args).items() if name != "batch_sizes"})


@by_schema
def npu_lstm_backward(args: Arguments) -> tuple[Tensor, ...]:
    return _lstm_gradients(
        (args.grady, args.gradh, args.gradc),
        (args.input, args.weight, args.bias, args.hx, args.cx),
        np.ones((len(args.input), 1, 1)),
        False,
    )


@by_schema
def npu_lstm_data_backward(args: Arguments) -> tuple[Tensor, ...]:
    mask = np.zeros((*args.input.shape[:2], 1))
    for step, present in enumerate(args.batch_sizes.tolist()):
        mask[step, :present] = 1
    return _lstm_gradients(
        (args.grady_opt, args.gradh_opt, args.gradc_opt),
        (args.input, args.weight, args.bias, args.init_h, args.init_c),
        mask,
        args.flag_direction,
    )


@by_schema
def npu_lstm_cell(args: Arguments) -> tuple[Tensor, ...]:
    bias = (
        torch.zeros(args.w_hh.shape[1])
        if args.b_ih is None or args.b_hh is None
        else args.b_ih.double() + args.b_hh.double()
    )
    weight = torch.cat((args.w_ih, args.w_hh))
    (step,) = _lstm(*map(_array, (args.input[None], weight, bias, args.h, args.c)), np.ones(1), False)
    results = {name: _as(step[name], args.input) for name in "yhcijfot"}
    return tuple(results[name] if name in "hc" else results[name][None] for name in "yhcijfot")


@by_schema
def npu_lstm_cell_backward(args: Arguments) -> tuple[Tensor, ...]:
    step = dict(
        zip(
            "ijfot",
            (_array(gate).reshape(args.h.shape) for gate in (args.i, args.j, args.f, args.o, args.tanhc)),
            strict=True,
        )
    )
    into_h = sum(
        _array(grad).reshape(args.h.shape) for grad in (args.grady, args.gradh) if grad is not None
    ) + np.zeros(args.h.shape)
    into_c = np.zeros(args.h.shape) if args.gradc is None else _array(args.gradc).reshape(args.h.shape)
    gates, before = _lstm_step_back(step, _array(args.c), into_h, into_c)
    bias = _as(gates.sum(0), args.input)
    return (
        _as(gates @ _array(args.w_ih).T, args.input),
        _as(_array(args.input).T @ gates, args.w_ih),
        _as(_array(args.h).T @ gates, args.w_hh),
        bias,
        bias.clone(),
        _as(gates @ _array(args.w_hh).T, args.h),
        _as(before, args.c),
    )


@by_schema
def npu_gru(args: Arguments) -> tuple[Tensor, ...]:
    steps = _gru(
        *map(
            _array,
            (
                args.input,
                args.hx.view(args.hx.shape[-2:]),
                args.weight_input,
                args.weight_hidden,
                args.bias_input,
                args.bias_hidden,
            ),
        )
    )
    return tuple(_as(np.stack([step[name] for step in steps]), args.bias_input) for name in "hhzrna")


@by_schema
def npu_gru_backward(args: Arguments) -> tuple[Tensor, ...]:
    x, first, w, v, b, a = map(
        _array,
        (
            args.input,
            args.hx.view(args.hx.shape[-2:]),
            args.weight_input,
            args.weight_hidden,
            args.bias_input,
            args.bias_hidden,
        ),
    )
    steps = _gru(x, first, w, v, b, a)
    grads = {name: np.zeros(like.shape) for name, like in zip("wvxba", (w, v, x, b, a), strict=True)}
    into = np.zeros_like(first) if args.gradh is None else _array(args.gradh)[-1]
    for at in reversed(range(len(x))):
        step, before = steps[at], steps[at - 1]["h"] if at else first
        into = into + (0 if args.grady is None else _array(args.grady)[at])
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
    likes = (args.weight_input, args.weight_hidden, args.input, args.bias_input, args.bias_hidden)
    return *(_as(grads[name], like) for name, like in zip("wvxba", likes, strict=True)), _as(into, args.hx).view(
        args.hx.shape
    )


def _lstm_npu(
    input: Tensor,  # noqa: A002
    hx: Sequence[Tensor],
    params: Sequence[Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    *,
    batch_first: bool | None = False,
    batch_sizes: Tensor | None = None,
) -> tuple[Tensor, ...]:
    """Take the results from torch's own LSTM, and what is saved from the loop over each layer."""
    start = _torch_states(input, hx, params, num_layers, bidirectional, bool(batch_first))
    y, h, c = _torch_lstm(input, start, params, has_biases, num_layers, bidirectional, bool(batch_first))
    if not train:
        return y, h, c, *[input.new_empty(0)] * 4, h.clone(), c.clone(), input.new_empty(0)
    x, saved, ways = _array(input.transpose(0, 1) if batch_first else input), [], 1 + bidirectional
    for layer in range(num_layers):
        outputs = []
        for way in range(ways):
            at = layer * ways + way
            w_ih, w_hh, *biases = map(
                _array, params[at * len(params) // (num_layers * ways) :][: 4 if has_biases else 2]
            )
            bias = biases[0] + biases[1] if biases else np.zeros(len(w_ih))
            weight = np.concatenate((w_ih, w_hh), 1).T
            steps = _lstm(x, weight, bias, _array(start[0][at]), _array(start[1][at]), np.ones(1), bool(way))
            saved.append([np.stack([step[name] for step in steps]) for name in "ijfohct"])
            outputs.append(saved[-1][4])
        x = np.concatenate(outputs, -1)
    return y, h, c, *(_as(np.stack(each), input) for each in zip(*saved, strict=True))


def _lstm_npu_backward(
    grad_y: Tensor,
    grad_hy: Tensor,
    grad_cy: Tensor,
    input: Tensor,  # noqa: A002
    hx: Sequence[Tensor],
    params: Sequence[Tensor],
    i: Tensor,
    j: Tensor,
    f: Tensor,
    o: Tensor,
    h: Tensor,
    c: Tensor,
    tanhc: Tensor,
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    *,
    batch_first: bool | None = False,
    batch_sizes: Tensor | None = None,
) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    with torch.enable_grad():
        leaves = [each.detach().clone().requires_grad_() for each in (input, *hx, *params)]
        x, start, weights = leaves[0], (leaves[1], leaves[2]), leaves[3:]
        results = _torch_lstm(x, start, weights, has_biases, num_layers, bidirectional, bool(batch_first))
    grads = torch.autograd.grad(results, leaves, (grad_y, grad_hy, grad_cy))
    return grads[0], list(grads[1:3]), list(grads[3:])


def _torch_states(
    x: Tensor, hx: Sequence[Tensor], params: Sequence[Tensor], layers: int, bidirectional: bool, batch_first: bool
) -> tuple[Tensor, Tensor]:
    if hx:
        return hx[0], hx[1]
    zero = x.new_zeros(layers * (1 + bidirectional), x.shape[0 if batch_first else 1], params[1].shape[1])
    return zero, zero


def _torch_lstm(x: Tensor, hx: Sequence[Tensor], params: Sequence[Tensor], *switches: Any) -> tuple[Tensor, ...]:
    has_biases, layers, bidirectional, batch_first = switches
    start, weights = list(hx), list(params)
    return cast(
        "tuple[Tensor, ...]",
        torch._VF.lstm(x, start, weights, has_biases, layers, 0.0, True, bidirectional, batch_first),  # type: ignore[attr-defined]
    )


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
