"""The NPU's causal convolutions: token by token in numpy, each with its window of history."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from tests.support.cann.operators.by_schema import Arguments, by_schema

Array = npt.NDArray[np.float64]


@by_schema
def npu_fused_causal_conv1d(args: Arguments) -> Tensor:
    states, taps = _array(args.conv_states), _array(args.weight)
    slots, kept = states.shape[1], len(taps) - 1
    flat = _array(args.x).reshape(-1, args.x.shape[-1])
    out = flat.copy()
    for number, (start, end) in enumerate(_bounds(args.x, args.query_start_loc)):
        read = written = number
        if args.cache_indices is not None and args.cache_indices.dim() == 1:
            read = written = int(args.cache_indices[number])
        elif args.cache_indices is not None:
            assert args.initial_state_idx is not None and args.block_idx_last_scheduled_token is not None  # noqa: PT018
            read = int(args.cache_indices[number, int(args.initial_state_idx[number])])
            written = int(args.cache_indices[number, int(args.block_idx_last_scheduled_token[number])])
        if args.cache_indices is not None and written == args.pad_slot_id:
            continue
        done = -1 if args.num_computed_tokens is None else int(args.num_computed_tokens[number])
        before = slots if args.num_accepted_tokens is None else kept + int(args.num_accepted_tokens[number]) - 1
        history = np.zeros((kept, args.x.shape[-1])) if done == 0 else states[read, :before].copy()
        line = np.concatenate((history, flat[start:end]))
        if args.cache_indices is not None and args.cache_indices.dim() == 2:
            assert args.block_idx_first_scheduled_token is not None and args.block_idx_last_scheduled_token is not None  # noqa: PT018
            assert args.block_size is not None
            first, last = (
                int(block[number])
                for block in (args.block_idx_first_scheduled_token, args.block_idx_last_scheduled_token)
            )
            # a block is full at each multiple of its size; the last of them that has a token behind it or ends with one
            ends = [
                token
                for token in range(1, end - start + 1)
                if (done + token) % args.block_size == 0 and start + token < end
            ]
            for place, token in zip(range(last - 1, first - 1, -1), reversed(ends), strict=False):
                states[int(args.cache_indices[number, place]), slots - kept :] = line[len(history) + token - kept :][
                    :kept
                ]
        tail = line[max(0, len(line) - slots) :]
        states[written, slots - len(tail) :] = tail
        for token in range(end - start):
            window = line[len(history) + token - kept :][: kept + 1]
            y = (window * taps).sum(0)
            if args.conv_mode == "pangu" and done + token < kept:
                y = np.zeros_like(y)
            out[start + token] = y + (flat[start + token] if args.residual_connection == 1 else 0)
    args.conv_states.copy_(torch.from_numpy(states))
    return torch.from_numpy(out).to(args.x.dtype).view(args.x.shape)


@by_schema
def npu_fused_causal_conv1d_v2(args: Arguments) -> None:
    args.x.copy_(npu_fused_causal_conv1d(**vars(args)))


@by_schema
def npu_masked_causal_conv1d(args: Arguments) -> Tensor:
    x, taps = _array(args.input), _array(args.weight)
    out = np.zeros_like(x)
    for step in range(len(x)):
        for back in range(min(step + 1, len(taps))):
            out[step] += taps[len(taps) - 1 - back] * x[step - back]
    if args.mask is not None:
        out[~args.mask.T.numpy()] = 0
    return torch.from_numpy(out).to(args.input.dtype)


@by_schema
def npu_masked_causal_conv1d_backward(args: Arguments) -> tuple[Tensor, Tensor]:
    grad, x, taps = _array(args.grad_output).copy(), _array(args.input), _array(args.weight)
    if args.mask is not None:
        grad[~args.mask.T.numpy()] = 0
    grad_x, grad_taps = np.zeros_like(x), np.zeros_like(taps)
    for step in range(len(x)):
        for back in range(min(step + 1, len(taps))):
            tap = len(taps) - 1 - back
            grad_x[step - back] += taps[tap] * grad[step]
            grad_taps[tap] += (x[step - back] * grad[step]).sum(0)
    return torch.from_numpy(grad_x).to(args.input.dtype), torch.from_numpy(grad_taps).to(args.weight.dtype)


def _bounds(x: Tensor, starts: Tensor | None) -> Iterator[tuple[int, int]]:
    ends = (
        list(range(0, x.shape[0] * x.shape[1] + 1, x.shape[1])) if x.dim() == 3 or starts is None else starts.tolist()
    )
    yield from pairwise(ends)


def _array(x: Tensor) -> Array:
    return cast(Array, x.detach().double().numpy())
