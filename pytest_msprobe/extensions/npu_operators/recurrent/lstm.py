"""LSTM layers, cells and stacks of layers, and their gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from pytest_msprobe.engine.replay.inputs.constraints.drawn import DrawnArguments
from pytest_msprobe.engine.replay.ops.operators import golden
from pytest_msprobe.engine.replay.ops.traits import OpInfo
from pytest_msprobe.extensions.npu_operators.arguments import refuse
from pytest_msprobe.extensions.npu_operators.inputs import sequences
from pytest_msprobe.extensions.npu_operators.inputs.sequences import copy_results, make_fall, present, wide

if TYPE_CHECKING:
    Results = tuple[Tensor | None, ...]
    Step = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]
    from collections.abc import Sequence


@golden("NPU.npu_lstm", OpInfo(constraint=sequences.padded, recurrent=True))
def npu_lstm(
    input: Tensor, weight: Tensor, bias: Tensor, seq_mask: Tensor, h: Tensor, c: Tensor, has_biases: bool,
    num_layers: int, dropout: float, train: bool, bidirectional: bool, batch_first: bool, flag_seq: bool,
    direction: bool,
) -> Results:  # fmt: skip
    """Return (y, h, c, i, j, f, o, tanh(c)) of one LSTM layer at every step, each (T, B, H).

    ``input`` is (T, B, I), ``weight`` (I + H, 4H) with the rows of the input first, ``bias`` (4H), the states ``h``
    and ``c`` are (1, B, H). The columns are those of the gates i, j, f and o in torch's order: i, f, j (the candidate)
    and o. With them c' = f c + i j and h' = o tanh(c'). ``direction`` goes from the last step to the first; a result
    stays at its step's place. ``flag_seq`` reads ``seq_mask`` (T, B, H), 1 where a sequence has a step: otherwise the
    states stay as they are and y is 0.

    One layer in one direction is computed whatever ``num_layers``, ``bidirectional``, ``batch_first``, ``has_biases``,
    ``dropout`` and ``train`` say: op-plugin passes on what its caller was given, and stacks the layers itself. As
    its gradient does, h and c have gradients at the last step only, the gates none (op-plugin's derivatives).

    The gates are None without ``train``, and with ``flag_seq``: nothing is documented of them then. Assumed: y
    of a step that a sequence lacks is 0.
    """
    return _all_steps(input, weight, bias, seq_mask if flag_seq else None, h, c, train, direction)


@golden("NPU.npu_lstm_data", OpInfo(constraint=sequences.padded_by_sizes, recurrent=True))
def npu_lstm_data(
    input: Tensor, batch_sizes: Tensor, weight: Tensor, bias: Tensor, seq_mask: Tensor, h: Tensor, c: Tensor,
    has_biases: bool, num_layers: int, dropout: float, train: bool, bidirectional: bool, batch_first: bool,
    flag_seq: bool, direction: bool,
) -> Results:  # fmt: skip
    """Return what :func:`npu_lstm` does for padded sequences; ``batch_sizes`` is read by the gradient alone."""
    return _all_steps(input, weight, bias, seq_mask if flag_seq else None, h, c, train, direction)


def saved_lstm_results(drawn: DrawnArguments) -> None:
    """Make the results that the gradient of ``npu_lstm`` is given those of its inputs."""
    tensors = drawn.args[3:]
    if len(tensors) == 13 and all(isinstance(value, Tensor) for value in tensors):
        x, w, b, h, c, *saved = tensors
        x, w, b, h, c = wide(x, w, b, h[0], c[0])
        copy_results(lstm_steps(x, w, b, h, c, None, False), saved)


@golden("Aten.npu_lstm_backward", OpInfo(constraint=saved_lstm_results, recurrent=True))
def npu_lstm_backward(
    grady: Tensor | None, gradh: Tensor | None, gradc: Tensor | None, input: Tensor, weight: Tensor,
    bias: Tensor, hx: Tensor, cx: Tensor, y_output: Tensor, h_output: Tensor, c_output: Tensor, i: Tensor,
    j: Tensor, f: Tensor, o: Tensor, tanhc: Tensor,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Return the gradients of :func:`npu_lstm` from the first step on: input, weight, bias, h and c.

    Of ``gradh`` and ``gradc`` the last step is read (op-plugin). The forward's results are not: they follow from the
    inputs.
    """
    with torch.enable_grad():
        sources = [tensor.detach().requires_grad_() for tensor in (input, weight, bias, hx, cx)]
        x, w, b, h, c = sources
        results = _last_differentiable(lstm_steps(x, w, b, h[0], c[0], None, False))
    return _gradients(results, (grady, gradh, gradc), sources)


def saved_lstm_data_results(drawn: DrawnArguments) -> None:
    """Make the results that the gradient of ``npu_lstm_data`` is given those of its inputs, and its sizes fall."""
    tensors = drawn.args[3:17]
    if len(drawn.args) == 18 and all(isinstance(value, Tensor) for value in tensors):
        x, sizes, w, b, h, c, *saved = tensors
        make_fall(sizes, x.shape[1])
        mask = present(sizes, x.shape[1]).to(torch.float64)
        x, w, b, h, c = wide(x, w, b, h[0], c[0])
        copy_results(lstm_steps(x, w, b, h, c, mask, bool(drawn.args[17])), saved)


@golden("Aten.npu_lstm_data_backward", OpInfo(constraint=saved_lstm_data_results, recurrent=True))
def npu_lstm_data_backward(
    grady_opt: Tensor | None, gradh_opt: Tensor | None, gradc_opt: Tensor | None, input: Tensor,
    batch_sizes: Tensor, weight: Tensor, bias: Tensor, init_h: Tensor, init_c: Tensor, y: Tensor, h: Tensor,
    c: Tensor, i: Tensor, j: Tensor, f: Tensor, o: Tensor, tanhc: Tensor, flag_direction: bool,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Return the gradients of :func:`npu_lstm_data` for input, weight, bias, h and c.

    ``batch_sizes`` (T) says how many sequences have each step, the longest first. Gradients as for
    :func:`npu_lstm_backward`.
    """
    steps, batch = input.shape[:2]
    present = torch.arange(batch) < batch_sizes.reshape(steps, 1)
    with torch.enable_grad():
        sources = [tensor.detach().requires_grad_() for tensor in (input, weight, bias, init_h, init_c)]
        x, w, b, first_h, first_c = sources
        mask = present.unsqueeze(-1).to(x.dtype)
        results = _last_differentiable(lstm_steps(x, w, b, first_h[0], first_c[0], mask, flag_direction))
    return _gradients(results, (grady_opt, gradh_opt, gradc_opt), sources)


@golden("NPU.npu_lstm_cell", OpInfo(recurrent=True))
def npu_lstm_cell(
    input: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    h: Tensor,
    c: Tensor,
    b_ih: Tensor | None = None,
    b_hh: Tensor | None = None,
) -> Results:
    """Return (y, h, c, i, j, f, o, tanh(c)) of one LSTM step; h and c are (B, H), the others (1, B, H).

    ``input`` is (B, I), ``w_ih`` (I, 4H), ``w_hh`` (H, 4H), the biases are (4H); the order of the gates is that of
    :func:`npu_lstm`. Raises ValueError where only one of the biases is given.
    """
    if (b_ih is None) != (b_hh is None):
        raise ValueError("npu_lstm_cell takes both biases or neither")
    bias = None if b_ih is None or b_hh is None else b_ih + b_hh
    y, cell, *gates = _step(input @ w_ih, h, c, w_hh, bias)
    return y.unsqueeze(0), y, cell, *(gate.detach().unsqueeze(0) for gate in gates)


@golden("Aten.npu_lstm_cell_backward", OpInfo(recurrent=True))
def npu_lstm_cell_backward(
    grady: Tensor | None, gradh: Tensor | None, gradc: Tensor | None, input: Tensor, w_ih: Tensor, w_hh: Tensor,
    h: Tensor, c: Tensor, y_output: Tensor, h_output: Tensor, c_output: Tensor, i: Tensor, j: Tensor, f: Tensor,
    o: Tensor, tanhc: Tensor,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Return the gradients of :func:`npu_lstm_cell`: input, w_ih, w_hh, twice that of the bias, h and c.

    They follow from the saved gates: the biases, which the gates hold, are not among the arguments.
    """
    grad_y = torch.zeros_like(h)
    for part in (grady, gradh):
        grad_y = grad_y if part is None else grad_y + part.reshape(h.shape)
    gate_i, gate_j, gate_f, gate_o, squashed = (gate.reshape(h.shape) for gate in (i, j, f, o, tanhc))
    grad_c = grad_y * gate_o * (1 - squashed.square())
    grad_c = grad_c if gradc is None else grad_c + gradc.reshape(h.shape)
    slopes = (
        grad_c * gate_j * gate_i * (1 - gate_i),
        grad_c * c * gate_f * (1 - gate_f),
        grad_c * gate_i * (1 - gate_j.square()),
        grad_y * squashed * gate_o * (1 - gate_o),
    )
    gates = torch.cat(slopes, -1)
    bias = gates.sum(0)
    return gates @ w_ih.T, input.T @ gates, h.T @ gates, bias, bias, gates @ w_hh.T, grad_c * gate_f


def _step(projected: Tensor, h: Tensor, c: Tensor, w_hh: Tensor, bias: Tensor | None) -> Step:
    """Return (h', c', i, j, f, o, tanh(c')) of one step, ``projected`` the input times its weight."""
    gates = projected + h @ w_hh
    if bias is not None:
        gates = gates + bias
    i, f, j, o = gates.chunk(4, -1)
    i, f, j, o = torch.sigmoid(i), torch.sigmoid(f), torch.tanh(j), torch.sigmoid(o)
    cell = f * c + i * j
    squashed = torch.tanh(cell)
    return o * squashed, cell, i, j, f, o, squashed


def lstm_steps(
    x: Tensor, weight: Tensor, bias: Tensor, h: Tensor, c: Tensor, mask: Tensor | None, backwards: bool
) -> list[Tensor]:
    """Return [y, h, c, i, j, f, o, tanh(c)] of all steps of one layer, each (T, B, H), and absent steps' gates."""
    w_ih, w_hh = weight[: x.shape[-1]], weight[x.shape[-1] :]
    steps: list[tuple[Tensor, ...]] = []
    order = range(len(x) - 1, -1, -1) if backwards else range(len(x))
    for at in order:
        new_h, new_c, *gates = _step(x[at] @ w_ih, h, c, w_hh, bias)
        y = new_h
        if mask is not None:
            present = mask[at]
            new_h, new_c = present * new_h + (1 - present) * h, present * new_c + (1 - present) * c
            y = present * new_h
        h, c = new_h, new_c
        steps.append((y, h, c, *gates))
    if backwards:
        steps.reverse()
    return [torch.stack(states) for states in zip(*steps, strict=True)]


def _all_steps(
    x: Tensor, weight: Tensor, bias: Tensor, mask: Tensor | None, h: Tensor, c: Tensor, train: bool, backwards: bool
) -> Results:
    results = lstm_steps(x, weight, bias, h[0], c[0], mask, backwards)
    gates = [gate.detach() if train and mask is None else None for gate in results[3:]]
    return *_last_differentiable(results), *gates


def _last_differentiable(results: list[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """Return y, h and c, of the states only the last step with a gradient."""
    y, h, c = results[:3]
    h, c = (torch.cat((state[:-1].detach(), state[-1:])) for state in (h, c))
    return y, h, c


def _gradients(
    results: tuple[Tensor, ...], incoming: tuple[Tensor | None, ...], sources: list[Tensor]
) -> tuple[Tensor, ...]:
    pairs = [(result, grad) for result, grad in zip(results, incoming, strict=True) if grad is not None]
    if not pairs:
        return tuple(torch.zeros_like(source) for source in sources)
    outputs, grads = zip(*pairs, strict=True)
    return torch.autograd.grad(outputs, sources, grads, materialize_grads=True)


@golden("NPU._lstm_npu", OpInfo(recurrent=True), recorded=False)
def _lstm_npu(
    input: Tensor, hx: Sequence[Tensor], params: Sequence[Tensor], has_biases: bool, num_layers: int,
    dropout: float, train: bool, bidirectional: bool,
    *, batch_first: bool | None = False, batch_sizes: Tensor | None = None,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Return (output, hy, cy, i, j, f, o, h, c, tanh(c)) of ``torch.lstm``, whose arguments ``hx`` and ``params`` are.

    ``input`` is (T, B, I), with ``batch_first`` (B, T, I); so is the output, (T, B, D H) for D directions. hy and cy
    are (layers D, B, H). The rest is saved for the gradient, and has none: (layers D, T, B, H), a layer's directions
    one after the other. Without ``train`` it is empty but for h and c, which hold the last step's (layers D, B, H).
    ``dropout`` is documented as unsupported, and has no influence. Without ``hx`` the states begin with 0.

    Assumed: what a backward direction saves is at its steps' places. Raises NotImplementedError for ``batch_sizes``,
    of whose results the documentation gives two shapes.
    """
    refuse("_lstm_npu", batch_sizes=batch_sizes)
    output, h, c, saved = _stack(input, hx, params, has_biases, num_layers, bidirectional, bool(batch_first))
    if train:
        return output, h, c, *(result.detach() for result in saved)
    nothing = input.new_empty(0)
    return output, h, c, *[nothing] * 4, h.detach(), c.detach(), nothing


def saved_stack_results(drawn: DrawnArguments) -> None:
    """Make the results that the gradient of ``_lstm_npu`` is given those of its inputs."""
    if len(drawn.args) < 18 or drawn.kwargs.get("batch_sizes") is not None:
        return
    (x,), hx, params = wide(drawn.args[3]), wide(*drawn.args[4]), wide(*drawn.args[5])
    has_biases, layers, dropout, _, bidirectional = drawn.args[13:18]
    batch_first = bool(drawn.kwargs.get("batch_first"))
    results = _lstm_npu(x, hx, params, has_biases, layers, dropout, True, bidirectional, batch_first=batch_first)
    copy_results(results[3:], drawn.args[6:13])


@golden("Aten._lstm_npu_backward", OpInfo(constraint=saved_stack_results, recurrent=True))
def _lstm_npu_backward(
    grad_y: Tensor, grad_hy: Tensor, grad_cy: Tensor, input: Tensor, hx: Sequence[Tensor],
    params: Sequence[Tensor], i: Tensor, j: Tensor, f: Tensor, o: Tensor, h: Tensor, c: Tensor, tanhc: Tensor,
    has_biases: bool, num_layers: int, dropout: float, train: bool, bidirectional: bool,
    *, batch_first: bool | None = False, batch_sizes: Tensor | None = None,
) -> tuple[Tensor, list[Tensor], list[Tensor]]:  # fmt: skip
    """Return the gradients of :func:`_lstm_npu`: of input, of the two states, and of the parameters.

    The forward's results are not read: they follow from the inputs.
    """
    refuse("_lstm_npu_backward", batch_sizes=batch_sizes)
    with torch.enable_grad():
        x = input.detach().requires_grad_()
        states, weights = ([operand.detach().requires_grad_() for operand in operands] for operands in (hx, params))
        results = _stack(x, states, weights, has_biases, num_layers, bidirectional, bool(batch_first))[:3]
    grads = torch.autograd.grad(results, (x, *states, *weights), (grad_y, grad_hy, grad_cy))
    return grads[0], list(grads[1 : 1 + len(states)]), list(grads[1 + len(states) :])


def _stack(
    x: Tensor,
    hx: Sequence[Tensor],
    params: Sequence[Tensor],
    has_biases: bool,
    layers: int,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Tensor, Tensor, Tensor, list[Tensor]]:
    """Return the output, the last states, and [i, j, f, o, h, c, tanh(c)] of all layers and directions."""
    x = x.transpose(0, 1) if batch_first else x
    directions, per_layer = 1 + bidirectional, 4 if has_biases else 2
    last_h, last_c, saved = [], [], []
    for layer in range(layers):
        outputs = []
        for backwards in range(directions):
            at = layer * directions + backwards
            w_ih, w_hh, *biases = params[at * per_layer : (at + 1) * per_layer]
            weight = torch.cat((w_ih, w_hh), 1).T
            bias = biases[0] + biases[1] if biases else weight.new_zeros(weight.shape[1])
            zero = x.new_zeros(x.shape[1], w_hh.shape[1])
            first_h, first_c = (hx[0][at], hx[1][at]) if len(hx) else (zero, zero)
            y, h, c, *gates = lstm_steps(x, weight, bias, first_h, first_c, None, bool(backwards))
            end = 0 if backwards else -1
            outputs.append(y)
            last_h.append(h[end])
            last_c.append(c[end])
            saved.append([*gates[:4], h, c, gates[4]])
        x = torch.cat(outputs, -1)
    stacked = [torch.stack(results) for results in zip(*saved, strict=True)]
    return x.transpose(0, 1) if batch_first else x, torch.stack(last_h), torch.stack(last_c), stacked
