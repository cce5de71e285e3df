"""Calls of causal convolutions: the scenes of op-plugin's documentation, with fewer channels."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Generator, Tensor

from tests.support.cann.draws import draw
from tests.support.cann.example_call import Call

_CHANNELS, _TAPS = 64, 3

_draw = partial(draw, dtype=torch.bfloat16)


def _whole(*numbers: int) -> Tensor:
    return torch.tensor(numbers, dtype=torch.int32)


def _packed(lengths: list[int], states: int, **options: Any) -> Callable[[Generator], Call]:
    def call(generator: Generator) -> Call:
        tensors = ((sum(lengths), _CHANNELS), (_TAPS, _CHANNELS), (8, states, _CHANNELS))
        starts = _whole(0, *torch.tensor(lengths).cumsum(0).tolist())
        args = tuple(_draw(generator, *shape) for shape in tensors)
        return Call(args, {"query_start_loc": starts, "max_query_len": max(lengths), **options})

    return call


def _batched(generator: Generator) -> Call:
    shapes = ((3, 2, _CHANNELS), (_TAPS, _CHANNELS), (4, 3, _CHANNELS))
    args = tuple(_draw(generator, *shape, dtype=torch.float16) for shape in shapes)
    return Call(args, {"num_accepted_tokens": _whole(1, 2, 1), "cache_indices": _whole(2, 0, 3)})


def _prefixes(generator: Generator) -> Call:
    options = {
        "query_start_loc": _whole(0, 9, 13),
        "cache_indices": torch.arange(8, dtype=torch.int32).flip(0).view(2, 4).contiguous(),
        "num_computed_tokens": _whole(2, 4),
        "block_idx_first_scheduled_token": _whole(0, 1),
        "block_idx_last_scheduled_token": _whole(2, 1),
        "initial_state_idx": _whole(0, 0),
        "block_size": 4,
    }
    shapes = ((13, _CHANNELS), (_TAPS, _CHANNELS), (8, 2, _CHANNELS))
    return Call(tuple(_draw(generator, *shape) for shape in shapes), options)


def _masked(masked: bool, dtype: torch.dtype = torch.bfloat16) -> Callable[[Generator], Call]:
    def call(generator: Generator) -> Call:
        args = (_draw(generator, 7, 2, _CHANNELS, dtype=dtype), _draw(generator, 3, _CHANNELS, dtype=dtype))
        mask = torch.rand(2, 7, generator=generator) > 0.3
        return Call(args, {"mask": mask} if masked else {}, True)

    return call


def _masked_backward(generator: Generator) -> Call:
    shapes = ((7, 2, _CHANNELS), (7, 2, _CHANNELS), (3, _CHANNELS))
    mask = torch.rand(2, 7, generator=generator) > 0.3
    return Call(tuple(_draw(generator, *shape) for shape in shapes), {"mask": mask})


_SLOTS = _whole(0, 3, 1, 5)

EXAMPLES: dict[str, Callable[[Generator], Call]] = {
    "npu_fused_causal_conv1d": _packed([5, 3, 7, 4], 2, cache_indices=_SLOTS, residual_connection=1),
    "npu_fused_causal_conv1d-first_tokens": _packed(
        [5, 1, 7, 4], 2, cache_indices=_SLOTS, num_computed_tokens=_whole(10, 5, 0, 0)
    ),
    "npu_fused_causal_conv1d-speculative": _packed(
        [6, 3, 2, 1],
        4,
        cache_indices=_SLOTS,
        num_computed_tokens=_whole(0, 20, 50, 30),
        num_accepted_tokens=_whole(1, 1, 2, 1),
    ),
    "npu_fused_causal_conv1d-pangu": _packed(
        [5, 3, 7, 1], 2, num_computed_tokens=_whole(0, 1, 2, 0), conv_mode="pangu", residual_connection=1
    ),
    "npu_fused_causal_conv1d-batched": _batched,
    "npu_fused_causal_conv1d-prefixes": _prefixes,
    "npu_fused_causal_conv1d_v2": _packed([5, 3, 7, 4], 2, cache_indices=_SLOTS),
    "npu_fused_causal_conv1d_v2-padded": _packed([1, 1, 1, 1], 3, cache_indices=_whole(2, 4, -1, -1)),
    "npu_masked_causal_conv1d": _masked(True),
    "npu_masked_causal_conv1d-unmasked": _masked(False, torch.float16),
    "npu_masked_causal_conv1d_backward": _masked_backward,
}
