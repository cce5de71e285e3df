"""States that gates update step by step: the GRU and the gated delta rule."""

from __future__ import annotations

import torch
from torch import Tensor

from pytest_msprobe.engine.replay.inputs.constraints.drawn import DrawnArguments
from pytest_msprobe.engine.replay.ops.operators import golden
from pytest_msprobe.engine.replay.ops.traits import OpInfo
from pytest_msprobe.extensions.npu_operators.arguments import at_least_float32, refuse
from pytest_msprobe.extensions.npu_operators.inputs import sequences
from pytest_msprobe.extensions.npu_operators.inputs.sequences import copy_results, wide

Six = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]


@golden("NPU.npu_gru", OpInfo(recurrent=True))
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


def saved_gru_results(drawn: DrawnArguments) -> None:
    """Make the results that the gradient of ``npu_gru`` is given those of its inputs."""
    tensors = drawn.args[2:]
    if len(tensors) == 13 and all(isinstance(value, Tensor) for value in tensors):
        x, w, v, b, a, length, h, *saved = tensors
        x, h, w, v, b, a = wide(x, h, w, v, b, a)
        copy_results(npu_gru(x, h, w, v, b, a, length, True, 1, 0.0, True, False, False), saved)


@golden("Aten.npu_gru_backward", OpInfo(constraint=saved_gru_results, recurrent=True))
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
    return [torch.stack(states) for states in zip(*steps, strict=True)]


# in a chunk everything is a product of matrices; its size has no influence on values
_CHUNK = 64


@golden("NPU.npu_recurrent_gated_delta_rule", OpInfo(constraint=sequences.delta_rule, in_place=True))
def npu_recurrent_gated_delta_rule(
    query: Tensor, key: Tensor, value: Tensor, state: Tensor,
    *, beta: Tensor | None = None, scale: float | None = None, actual_seq_lengths: Tensor | None = None,
    ssm_state_indices: Tensor | None = None, num_accepted_tokens: Tensor | None = None, g: Tensor | None = None,
    gk: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Return the outputs (T, Nv, Dv) of the gated delta rule, and write the state after each token.

    ``query`` and ``key`` are (T, Nk, Dk), ``value`` is (T, Nv, Dv), T the tokens of all sequences one after the other,
    ``actual_seq_lengths`` (B) of each. A key head serves Nv / Nk value heads. For each token and head, with
    alpha = exp(g): S = alpha S; S = S + beta (v - S k) k^T; o = S q scale.

    ``state`` is (blocks, Nv, Dv, Dk); ``ssm_state_indices`` (T) names the block in which each token's state is written.
    A sequence begins with the state of its token number ``num_accepted_tokens`` (B), by default the first.

    Assumed: without ``beta`` it is 1, without ``scale`` 1 / sqrt(Dk), without ``g`` nothing decays (op-plugin's
    tests); sequences begin with the states from before the call. Raises ValueError without the lengths or the indices,
    NotImplementedError with ``gk``, which is documented as unsupported.
    """
    out, states = npu_recurrent_gated_delta_rule_functional(
        query,
        key,
        value,
        state,
        beta=beta,
        scale=scale,
        actual_seq_lengths=actual_seq_lengths,
        ssm_state_indices=ssm_state_indices,
        num_accepted_tokens=num_accepted_tokens,
        g=g,
        gk=gk,
    )
    with torch.no_grad():
        state.copy_(states)
    return out


@golden("NPU.npu_recurrent_gated_delta_rule_functional", OpInfo(constraint=sequences.delta_rule))
def npu_recurrent_gated_delta_rule_functional(
    query: Tensor, key: Tensor, value: Tensor, state: Tensor,
    *, beta: Tensor | None = None, scale: float | None = None, actual_seq_lengths: Tensor | None = None,
    ssm_state_indices: Tensor | None = None, num_accepted_tokens: Tensor | None = None, g: Tensor | None = None,
    gk: Tensor | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return (outputs, states) of :func:`npu_recurrent_gated_delta_rule`; ``state`` stays as it is."""
    refuse("npu_recurrent_gated_delta_rule", gk=gk)
    if actual_seq_lengths is None or ssm_state_indices is None:
        raise ValueError("npu_recurrent_gated_delta_rule needs actual_seq_lengths and ssm_state_indices")
    q, k, v = (_for_each_value_head(tensor, value) for tensor in (query, key, value))
    q = q * _scale(scale, query)
    decay = torch.ones_like(v[..., 0]) if g is None else g.exp()
    rate = torch.ones_like(v[..., 0]) if beta is None else beta
    states, outputs = state.detach().clone(), torch.zeros_like(value)
    start = 0
    for number, length in enumerate(actual_seq_lengths.tolist()):
        accepted = 1 if num_accepted_tokens is None else int(num_accepted_tokens[number])
        s = at_least_float32(state[ssm_state_indices[start + accepted - 1]].detach())
        for token in range(start, start + length):
            s = s * decay[token, :, None, None]
            delta = (v[token] - torch.einsum("hvk,hk->hv", s, k[token])) * rate[token, :, None]
            s = s + delta[..., None] * k[token][:, None, :]
            outputs[token] = torch.einsum("hvk,hk->hv", s, q[token]).detach().to(outputs.dtype)
            states[ssm_state_indices[token]] = s.detach().to(states.dtype)
        start += length
    return outputs, states


@golden("NPU.npu_chunk_gated_delta_rule", OpInfo(constraint=sequences.lengths))
def npu_chunk_gated_delta_rule(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    beta: Tensor | None = None,
    initial_state: Tensor | None = None,
    actual_seq_lengths: Tensor | None = None,
    scale: float | None = None,
    g: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Return (outputs, final states) of the gated delta rule: (T, Nv, Dv) and (B, Nv, Dv, Dk).

    The rule and its arguments are those of :func:`npu_recurrent_gated_delta_rule`; ``initial_state`` (B, Nv, Dv, Dk)
    holds a state for each sequence. Raises ValueError without ``actual_seq_lengths`` (B).

    Assumed: ``initial_state`` is 0 where it is not given, and is not written to, as its schema says and unlike the
    documentation's "input and output".
    """
    if actual_seq_lengths is None:
        raise ValueError("npu_chunk_gated_delta_rule needs actual_seq_lengths")
    q, k, v = (_for_each_value_head(tensor, value) for tensor in (query, key, value))
    q = q * _scale(scale, query)
    decay = torch.zeros_like(v[..., 0]) if g is None else g
    rate = torch.ones_like(v[..., 0]) if beta is None else beta
    initial = v.new_zeros(len(actual_seq_lengths), *v.shape[1:], k.shape[2]) if initial_state is None else initial_state
    outputs, states = [], []
    start = 0
    for number, length in enumerate(actual_seq_lengths.tolist()):
        s = at_least_float32(initial[number])
        for first in range(start, start + length, _CHUNK):
            rows = slice(first, min(first + _CHUNK, start + length))
            out, s = _chunk(q[rows], k[rows], v[rows], decay[rows], rate[rows], s)
            outputs.append(out)
        states.append(s)
        start += length
    rest = v.new_zeros(len(v) - start, *v.shape[1:])
    state_dtype = value.dtype if initial_state is None else initial_state.dtype
    return torch.cat((*outputs, rest)).to(value.dtype), torch.stack(states).to(state_dtype)


def _chunk(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
    """Return the outputs (C, N, Dv) of tokens and the state behind them, which they enter with ``s``.

    With G the sum of g up to a token, its step beta (v - S k) = u solves u_i + beta_i sum_{j<i} exp(G_i - G_j)
    (k_i . k_j) u_j = beta_i (v_i - exp(G_i) s k_i): one triangular system for all tokens.
    """
    q, k, v = (tensor.transpose(0, 1) for tensor in (q, k, v))
    total = g.T.cumsum(-1).unsqueeze(-1)
    earlier = (total - total.mT).tril().exp().tril()
    rate = at_least_float32(beta).T.unsqueeze(-1)
    system = (rate * earlier * (k @ k.mT)).tril(-1)
    steps = torch.linalg.solve_triangular(
        system, rate * (v - total.exp() * (k @ s.mT)), upper=False, unitriangular=True
    )
    out = total.exp() * (q @ s.mT) + (earlier * (q @ k.mT)) @ steps
    last = total[:, -1:]
    return out.transpose(0, 1), last.exp() * s + ((last - total).exp() * steps).mT @ k


def _for_each_value_head(tensor: Tensor, value: Tensor) -> Tensor:
    return at_least_float32(tensor).repeat_interleave(value.shape[1] // tensor.shape[1], 1)


def _scale(scale: float | None, query: Tensor) -> float:
    return float(query.shape[-1]) ** -0.5 if scale is None else scale
