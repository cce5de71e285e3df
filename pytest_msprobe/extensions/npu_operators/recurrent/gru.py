"""Gated recurrent units (Cho et al., 2014): one layer and its gradients."""

from __future__ import annotations

import torch
from torch import Tensor

Six = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]


def npu_gru(
    input: Tensor, hx: Tensor, weight_input: Tensor, weight_hidden: Tensor, bias_input: Tensor,
    bias_hidden: Tensor, seq_length: Tensor, has_biases: bool, num_layers: int, dropout: float, train: bool,
    bidirectional: bool, batch_first: bool,
) -> Six:  # fmt: skip
    """Return (y, h, update, reset, new, hidden_new) of one GRU layer at every step, each (T, B, H).

    ``input`` is (T, B, I), ``hx`` (1, B, H) or, as torch's layers pass it, (B, H), ``weight_input`` (I, 3H),
    ``weight_hidden`` (H, 3H), the biases are (3H). The columns are those of reset r, update z and new n, as torch's:
    n = tanh(x W + b + r hidden_new) with hidden_new = h V + a, and h' = (1 - z) n + z h.

    op-plugin hands neither ``seq_length`` nor the switches behind it to the device: one layer, in one direction, over
    all steps. As its gradient does, h has one at the last step only, and what follows it none.
    """
    y, h, *gates = _layer(input, _rows(hx), weight_input, weight_hidden, bias_input, bias_hidden)
    h = torch.cat((h[:-1].detach(), h[-1:]))
    return y, h, *(gate.detach() for gate in gates)  # type: ignore[return-value]


def npu_gru_backward(
    grady: Tensor | None, gradh: Tensor | None, input: Tensor, weight_input: Tensor, weight_hidden: Tensor,
    bias_input: Tensor, bias_hidden: Tensor, seq_length: Tensor, hx: Tensor, y_output: Tensor, h_output: Tensor,
    output_updata: Tensor, output_reset: Tensor, output_new: Tensor, hidden_new: Tensor,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Return the gradients of :func:`npu_gru`: weight_input, weight_hidden, input, bias_input, bias_hidden and hx.

    Of ``gradh`` the last step is read (op-plugin). The forward's results are not: they follow from the inputs.
    """
    with torch.enable_grad():
        sources = [
            tensor.detach().requires_grad_()
            for tensor in (weight_input, weight_hidden, input, bias_input, bias_hidden, hx)
        ]
        w, v, x, b, a, first = sources
        y, h, *_ = _layer(x, _rows(first), w, v, b, a)
    loss = y.new_zeros(())
    if grady is not None:
        loss = loss + (y * grady).sum()
    if gradh is not None:
        loss = loss + (h[-1] * gradh[-1]).sum()
    if not loss.requires_grad:
        return tuple(torch.zeros_like(source) for source in sources)
    return torch.autograd.grad(loss, sources, materialize_grads=True)


def _rows(state: Tensor) -> Tensor:
    return state.reshape(state.shape[-2:])


def _layer(x: Tensor, h: Tensor, w: Tensor, v: Tensor, b: Tensor, a: Tensor) -> list[Tensor]:
    """Return [y, h, update, reset, new, hidden_new] of all steps, each (T, B, H)."""
    steps: list[tuple[Tensor, ...]] = []
    for projected in x @ w + b:
        x_reset, x_update, x_new = projected.chunk(3, -1)
        h_reset, h_update, h_new = (h @ v + a).chunk(3, -1)
        reset, update = torch.sigmoid(x_reset + h_reset), torch.sigmoid(x_update + h_update)
        new = torch.tanh(x_new + reset * h_new)
        h = (1 - update) * new + update * h
        steps.append((h, h, update, reset, new, h_new))
    return [torch.stack(each) for each in zip(*steps, strict=True)]
