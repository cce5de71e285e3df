"""The NPU's gated delta rule, token by token and head by head in numpy."""

from __future__ import annotations

from typing import cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from tests.support.cann.operators.by_schema import Arguments, by_schema

Array = npt.NDArray[np.float64]


@by_schema
def npu_recurrent_gated_delta_rule(args: Arguments) -> Tensor:
    out, states = npu_recurrent_gated_delta_rule_functional(**vars(args))
    args.state.copy_(states)
    return out


@by_schema
def npu_recurrent_gated_delta_rule_functional(args: Arguments) -> tuple[Tensor, Tensor]:
    states, old = _array(args.state), _array(args.state).copy()
    out = np.zeros(args.value.shape)
    start = 0
    for number, length in enumerate(args.actual_seq_lengths.tolist()):
        first = start + (0 if args.num_accepted_tokens is None else int(args.num_accepted_tokens[number]) - 1)
        begin = old[int(args.ssm_state_indices[first])]
        tokens = range(start, start + length)
        for token, (o, after) in zip(
            tokens, _rule(args.query, args.key, args.value, args.beta, args.g, args.scale, begin, tokens), strict=True
        ):
            out[token] = o
            states[int(args.ssm_state_indices[token])] = after
        start += length
    return _as(out, args.value), _as(states, args.state)


@by_schema
def npu_chunk_gated_delta_rule(args: Arguments) -> tuple[Tensor, Tensor]:
    heads = (args.value.shape[1], args.value.shape[2], args.key.shape[2])
    out, last, start = np.zeros(args.value.shape), [], 0
    for number, length in enumerate(args.actual_seq_lengths.tolist()):
        state = np.zeros(heads) if args.initial_state is None else _array(args.initial_state[number])
        tokens = range(start, start + length)
        for token, (o, after) in zip(
            tokens, _rule(args.query, args.key, args.value, args.beta, args.g, args.scale, state, tokens), strict=True
        ):
            out[token], state = o, after
        last.append(state)
        start += length
    return _as(out, args.value), _as(np.stack(last), args.value if args.initial_state is None else args.initial_state)


def _rule(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    beta: Tensor | None,
    g: Tensor | None,
    scale: float | None,
    state: Array,
    tokens: range,
) -> list[tuple[Array, Array]]:
    """Return for each token its output (Nv, Dv) and the state (Nv, Dv, Dk) behind it."""
    group = value.shape[1] // key.shape[1]
    times = query.shape[2] ** -0.5 if scale is None else scale
    results = []
    for token in tokens:
        state, out = state.copy(), np.zeros(value.shape[1:])
        for head in range(value.shape[1]):
            q, k = (_array(x[token, head // group]) for x in (query, key))
            state[head] *= 1.0 if g is None else np.exp(float(g[token, head]))
            missing = _array(value[token, head]) - state[head] @ k
            state[head] += np.outer(missing * (1.0 if beta is None else float(beta[token, head])), k)
            out[head] = state[head] @ q * times
        results.append((out, state))
    return results


def _array(x: Tensor) -> Array:
    return cast(Array, x.detach().double().numpy())


def _as(x: Array, like: Tensor) -> Tensor:
    return torch.from_numpy(x).to(like.dtype)
