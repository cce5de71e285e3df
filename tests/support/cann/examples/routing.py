"""Calls of the operators that bring tokens to their experts and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tests.support.cann.draws import draw
from tests.support.cann.example_call import Call

TOKENS, CHOICES, EXPERTS, WIDTH = 5, 2, 4, 6


def _chosen(generator: torch.Generator) -> Tensor:
    """Draw different experts for each token."""
    return torch.rand(TOKENS, EXPERTS, generator=generator).argsort(1)[:, :CHOICES].int()


def _places(generator: torch.Generator, count: int = TOKENS * CHOICES) -> Tensor:
    return torch.randperm(count, generator=generator).int()


def _permute(generator: torch.Generator, dtype: torch.dtype, kept: int | None = None) -> Call:
    return Call((draw(generator, TOKENS, WIDTH, dtype=dtype), _chosen(generator), kept), differentiate=True)


def _unpermute(generator: torch.Generator, dtype: torch.dtype, *, weighted: bool = True) -> Call:
    count = TOKENS * (CHOICES if weighted else 1)
    probs = torch.rand(TOKENS, CHOICES, generator=generator).to(dtype) if weighted else None
    tokens = draw(generator, count, WIDTH, dtype=dtype)
    return Call((tokens, _places(generator, count)), {"probs": probs}, differentiate=True)


def _permute_grad(generator: torch.Generator, *, second: bool) -> Call:
    grad, places = draw(generator, 8, WIDTH, dtype=torch.bfloat16), _places(generator)
    if second:
        return Call((grad, places, TOKENS, torch.bfloat16, CHOICES))
    return Call((draw(generator, TOKENS, WIDTH, dtype=torch.bfloat16), grad, _chosen(generator), places))


def _unpermute_grad(generator: torch.Generator, *, second: bool, weighted: bool = True) -> Call:
    grad = draw(generator, TOKENS, WIDTH)
    count = TOKENS * (CHOICES if weighted else 1)
    tokens, places = draw(generator, count, WIDTH), _places(generator, count)
    probs = torch.rand(TOKENS, CHOICES, generator=generator) if weighted else None
    if second:
        return Call((grad, places, count, torch.float32), {"probs": probs, "permuted_tokens": tokens})
    return Call((tokens, grad, places), {"probs": probs})


def _init(generator: torch.Generator) -> Call:
    copies = torch.arange(TOKENS * CHOICES, dtype=torch.int32).reshape(CHOICES, TOKENS).T.contiguous()
    return Call((draw(generator, TOKENS, WIDTH, dtype=torch.float16), copies, _chosen(generator), TOKENS))


def _init_v2(generator: torch.Generator, **kwargs: Any) -> Call:
    x = draw(generator, TOKENS, WIDTH, dtype=torch.bfloat16)
    if kwargs.pop("smooth", False):
        kwargs["scale"] = torch.rand(EXPERTS, WIDTH, generator=generator) + 0.5
    elif kwargs.get("quant_mode", -1) == -1:
        kwargs["scale"] = torch.rand(TOKENS, generator=generator)
    common = {"expert_num": EXPERTS, "expert_tokens_num_type": 1, "expert_tokens_num_flag": True, "active_num": -1}
    return Call((x, _chosen(generator)), {**common, "active_expert_range": [0, EXPERTS], **kwargs})


def _finalize(generator: torch.Generator, *, scaled: bool = True, mode: int = 0) -> Call:
    rows = draw(generator, TOKENS * CHOICES, WIDTH)
    skips = [draw(generator, TOKENS, WIDTH) for _ in range(2)]
    places = _places(generator)
    if not scaled:
        return Call((rows, *skips, None, None, places, None, mode, CHOICES))
    bias, scales = draw(generator, EXPERTS, WIDTH), torch.rand(TOKENS, CHOICES, generator=generator)
    return Call((rows, *skips, bias, scales, places, _chosen(generator), mode))


def _re_routing(generator: torch.Generator) -> Call:
    counts = torch.tensor([[2, 0, 1], [1, 3, 2]], dtype=torch.int32)
    tokens = draw(generator, 9, WIDTH, dtype=torch.float16)
    return Call((tokens, counts), {"per_token_scales": torch.rand(9, generator=generator)})


EXAMPLES: dict[str, Callable[[torch.Generator], Call]] = {
    "npu_moe_token_permute": lambda g: _permute(g, torch.float16),
    "npu_moe_token_permute-fewer": lambda g: _permute(g, torch.bfloat16, 7),
    "npu_moe_token_permute_grad": lambda g: _permute_grad(g, second=False),
    "npu_moe_token_permute_grad_v2": lambda g: _permute_grad(g, second=True),
    "npu_moe_token_unpermute": lambda g: _unpermute(g, torch.float16),
    "npu_moe_token_unpermute-unweighted": lambda g: _unpermute(g, torch.float32, weighted=False),
    "_npu_moe_token_unpermute": lambda g: _unpermute(g, torch.float32),
    "npu_moe_token_unpermute_grad": lambda g: _unpermute_grad(g, second=False),
    "npu_moe_token_unpermute_grad-unweighted": lambda g: _unpermute_grad(g, second=False, weighted=False),
    "npu_moe_token_unpermute_grad_v2": lambda g: _unpermute_grad(g, second=True),
    "npu_moe_init_routing": _init,
    "npu_moe_init_routing_v2": lambda g: _init_v2(g),
    "npu_moe_init_routing_v2-quantized": lambda g: _init_v2(g, quant_mode=1, row_idx_type=1),
    "npu_moe_init_routing_v2-smoothed": lambda g: _init_v2(g, quant_mode=1, smooth=True),
    "npu_moe_finalize_routing": lambda g: _finalize(g),
    "npu_moe_finalize_routing-k": lambda g: _finalize(g, scaled=False),
    "npu_moe_finalize_routing-by_row": lambda g: _finalize(g, mode=2),
    "npu_moe_re_routing": _re_routing,
}
