"""Several layers of long short-term memory, in one direction or both, with torch's parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from pytest_msprobe.extensions.npu_operators.recurrent.lstm_layers import lstm_steps
from pytest_msprobe.extensions.npu_operators.reference_arguments import refuse

if TYPE_CHECKING:
    from collections.abc import Sequence


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
        return output, h, c, *(each.detach() for each in saved)
    nothing = input.new_empty(0)
    return output, h, c, *[nothing] * 4, h.detach(), c.detach(), nothing


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
        states, weights = ([each.detach().requires_grad_() for each in given] for given in (hx, params))
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
    directions, each = 1 + bidirectional, 4 if has_biases else 2
    last_h, last_c, saved = [], [], []
    for layer in range(layers):
        outputs = []
        for backwards in range(directions):
            at = layer * directions + backwards
            w_ih, w_hh, *biases = params[at * each : (at + 1) * each]
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
