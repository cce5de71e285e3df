"""The NPU's causal convolutions: token by token in numpy, each with its window of history."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Array = npt.NDArray[np.float64]


def npu_fused_causal_conv1d(
    x: Tensor,
    weight: Tensor,
    conv_states: Tensor,
    *,
    query_start_loc: Tensor | None = None,
    cache_indices: Tensor | None = None,
    num_accepted_tokens: Tensor | None = None,
    pad_slot_id: int | None = -1,
    residual_connection: int | None = 0,
    num_computed_tokens: Tensor | None = None,
    block_idx_first_scheduled_token: Tensor | None = None,
    block_idx_last_scheduled_token: Tensor | None = None,
    initial_state_idx: Tensor | None = None,
    block_size: int | None = 128,
    conv_mode: str | None = "default",
    **ignored: Any,
) -> Tensor:
    states, taps = _array(conv_states), _array(weight)
    slots, kept = states.shape[1], len(taps) - 1
    flat = _array(x).reshape(-1, x.shape[-1])
    out = flat.copy()
    for number, (start, end) in enumerate(_bounds(x, query_start_loc)):
        read = written = number
        if cache_indices is not None and cache_indices.dim() == 1:
            read = written = int(cache_indices[number])
        elif cache_indices is not None:
            assert initial_state_idx is not None and block_idx_last_scheduled_token is not None  # noqa: PT018
            read = int(cache_indices[number, int(initial_state_idx[number])])
            written = int(cache_indices[number, int(block_idx_last_scheduled_token[number])])
        if cache_indices is not None and written == pad_slot_id:
            continue
        done = -1 if num_computed_tokens is None else int(num_computed_tokens[number])
        before = slots if num_accepted_tokens is None else kept + int(num_accepted_tokens[number]) - 1
        history = np.zeros((kept, x.shape[-1])) if done == 0 else states[read, :before].copy()
        line = np.concatenate((history, flat[start:end]))
        if cache_indices is not None and cache_indices.dim() == 2:
            assert block_idx_first_scheduled_token is not None and block_idx_last_scheduled_token is not None  # noqa: PT018
            assert block_size is not None
            first, last = (
                int(block[number]) for block in (block_idx_first_scheduled_token, block_idx_last_scheduled_token)
            )
            # a block is full at each multiple of its size; the last of them that has a token behind it or ends with one
            ends = [
                token for token in range(1, end - start + 1) if (done + token) % block_size == 0 and start + token < end
            ]
            for place, token in zip(range(last - 1, first - 1, -1), reversed(ends), strict=False):
                states[int(cache_indices[number, place]), slots - kept :] = line[len(history) + token - kept :][:kept]
        tail = line[max(0, len(line) - slots) :]
        states[written, slots - len(tail) :] = tail
        for token in range(end - start):
            window = line[len(history) + token - kept :][: kept + 1]
            y = (window * taps).sum(0)
            if conv_mode == "pangu" and done + token < kept:
                y = np.zeros_like(y)
            out[start + token] = y + (flat[start + token] if residual_connection == 1 else 0)
    conv_states.copy_(torch.from_numpy(states))
    return torch.from_numpy(out).to(x.dtype).view(x.shape)


def npu_fused_causal_conv1d_v2(x: Tensor, weight: Tensor, conv_states: Tensor, **options: Any) -> None:
    x.copy_(npu_fused_causal_conv1d(x, weight, conv_states, **options))


def npu_masked_causal_conv1d(input: Tensor, weight: Tensor, *, mask: Tensor | None = None) -> Tensor:  # noqa: A002
    x, taps = _array(input), _array(weight)
    out = np.zeros_like(x)
    for step in range(len(x)):
        for back in range(min(step + 1, len(taps))):
            out[step] += taps[len(taps) - 1 - back] * x[step - back]
    if mask is not None:
        out[~mask.T.numpy()] = 0
    return torch.from_numpy(out).to(input.dtype)


def npu_masked_causal_conv1d_backward(
    grad_output: Tensor,
    input: Tensor,  # noqa: A002
    weight: Tensor,
    *,
    mask: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    grad, x, taps = _array(grad_output).copy(), _array(input), _array(weight)
    if mask is not None:
        grad[~mask.T.numpy()] = 0
    grad_x, grad_taps = np.zeros_like(x), np.zeros_like(taps)
    for step in range(len(x)):
        for back in range(min(step + 1, len(taps))):
            tap = len(taps) - 1 - back
            grad_x[step - back] += taps[tap] * grad[step]
            grad_taps[tap] += (x[step - back] * grad[step]).sum(0)
    return torch.from_numpy(grad_x).to(input.dtype), torch.from_numpy(grad_taps).to(weight.dtype)


def _bounds(x: Tensor, starts: Tensor | None) -> Iterator[tuple[int, int]]:
    ends = (
        list(range(0, x.shape[0] * x.shape[1] + 1, x.shape[1])) if x.dim() == 3 or starts is None else starts.tolist()
    )
    yield from pairwise(ends)


def _array(x: Tensor) -> Array:
    return cast(Array, x.detach().double().numpy())
