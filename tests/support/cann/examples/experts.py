"""Calls of the operators that choose and count experts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tests.support.cann.example_call import Call


def _logits(generator: torch.Generator, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, generator=generator).to(dtype)


def _gating(generator: torch.Generator, dtype: torch.dtype = torch.float32, **kwargs: Any) -> Call:
    return Call((_logits(generator, 4, 16, dtype=dtype), 3), kwargs, differentiate=True)


def _biased_gating(generator: torch.Generator) -> Call:
    bias = torch.rand(16, generator=generator)
    modes = {"k_group": 2, "group_count": 4, "group_select_mode": 1, "norm_type": 1, "routed_scaling_factor": 2.5}
    return Call((_logits(generator, 4, 16), 3), {"bias": bias, "out_flag": True, **modes}, differentiate=True)


def _softmax_gating(generator: torch.Generator, **kwargs: Any) -> Call:
    return Call((_logits(generator, 2, 4, 6, dtype=torch.float16),), {"k": 2, **kwargs}, differentiate=True)


def _gating_backward(generator: torch.Generator, norm_type: int, dtype: torch.dtype) -> Call:
    logits = _logits(generator, 5, 8)
    norm = torch.sigmoid(logits) if norm_type == 1 else torch.softmax(logits, -1)
    chosen = norm.topk(3).indices.int()
    grad = _logits(generator, 5, 3, dtype=dtype)
    return Call((norm, grad, chosen), {"norm_type": norm_type, "routed_scaling_factor": 1.5})


def _update(generator: torch.Generator, *, pruned: bool, mode: int) -> Call:
    counts = torch.randint(1, 5, (16, 1), generator=generator)
    cards = torch.stack([torch.randperm(8, generator=generator)[:4] for _ in range(16)])
    ids = torch.randint(0, 16, (6, 4), generator=generator, dtype=torch.int32)
    kwargs: dict[str, Any] = {"balance_mode": mode}
    if mode == 0:
        kwargs |= {"local_rank_id": 5, "world_size": 8}
    if pruned:
        scales = torch.rand(6, 4, generator=generator).sort(descending=True).values
        threshold = torch.rand(1, 4, generator=generator) / 2
        active = torch.tensor([True] * 4 + [False] * 2)
        kwargs |= {"expert_scales": scales, "pruning_threshold": threshold, "active_mask": active}
    return Call((ids, torch.cat((counts, cards), 1).int()), kwargs)


def _expert_tokens(generator: torch.Generator) -> Call:
    experts = torch.randint(0, 6, (20,), generator=generator, dtype=torch.int32).sort().values
    return Call((experts, 6))


EXAMPLES: dict[str, Callable[[torch.Generator], Call]] = {
    "npu_moe_gating_top_k": lambda g: _gating(g),
    "npu_moe_gating_top_k-half": lambda g: _gating(g, torch.float16, norm_type=1),
    "npu_moe_gating_top_k-groups": _biased_gating,
    "npu_moe_gating_top_k_backward": lambda g: _gating_backward(g, 1, torch.bfloat16),
    "npu_moe_gating_top_k_backward-softmax": lambda g: _gating_backward(g, 0, torch.float32),
    "npu_moe_gating_top_k_softmax_v2": lambda g: _softmax_gating(g),
    "npu_moe_gating_top_k_softmax_v2-finished": lambda g: _softmax_gating(
        g, finished=torch.tensor([[True, False, False, True]] * 2), output_softmax=True
    ),
    "npu_moe_gating_top_k_softmax_v2-renorm": lambda g: _softmax_gating(g, renorm=1, output_softmax=True),
    "npu_moe_update_expert": lambda g: _update(g, pruned=True, mode=0),
    "npu_moe_update_expert-by_token": lambda g: _update(g, pruned=False, mode=1),
    "npu_moe_compute_expert_tokens": _expert_tokens,
}
