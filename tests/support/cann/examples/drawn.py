"""Calls of operators whose results are drawn: the documentation's examples, of sizes at which a fault shows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Generator, Tensor

from tests.support.cann.example_call import Call

_ROWS, _TOKENS = 4, 200


def _dropout(dtype: torch.dtype) -> Callable[[Generator], Call]:
    return lambda generator: Call((torch.randn(30, 40, generator=generator).to(dtype), 0.3), {}, True)


def _seeded(generator: Generator) -> Call:
    return Call((torch.zeros(17, 19), [17, 19], 0.4, 2, 100), {"parallel": True})


def _exponential(generator: Generator) -> Call:
    return Call((torch.zeros(30, 40),), {"lambd": 2.0})


def _choice(count: int, *shape: int) -> Callable[[Generator], Call]:
    return lambda generator: Call((torch.rand(shape, generator=generator) < 0.5, count))


def _labels(generator: Generator) -> Call:
    return Call((torch.randint(-1, 2, (100,), generator=generator).int(), 20, 0.6))


def _logits(generator: Generator, dtype: torch.dtype) -> Tensor:
    return (3 * torch.randn(_ROWS, _TOKENS, generator=generator)).to(dtype)


def _filter(by_k: bool, by_p: bool, dtype: torch.dtype) -> Callable[[Generator], Call]:
    def call(generator: Generator) -> Call:
        k = torch.randint(10, 100, (_ROWS,), generator=generator).int() if by_k else None
        p = torch.tensor([0.3, 0.6, 0.9, 1.0]).to(dtype) if by_p else None
        return Call((_logits(generator, dtype), p, k))

    return call


def _sample(drawn: bool, dtype: torch.dtype = torch.float16, **options: Any) -> Callable[[Generator], Call]:
    def call(generator: Generator) -> Call:
        # of the four rows one is cut by number, one by share, one by both and one by neither
        k, p = torch.tensor([20, 2000, 50, 0]).int(), torch.tensor([1.0, 0.8, 0.5, 1.0]).to(dtype)
        q = torch.rand(_ROWS, _TOKENS, generator=generator) if drawn else None
        return Call((_logits(generator, dtype), k, p, q), options)

    return call


EXAMPLES: dict[str, Callable[[Generator], Call]] = {
    "_npu_dropout": _dropout(torch.float32),
    "_npu_dropout-bfloat16": _dropout(torch.bfloat16),
    "_npu_dropout_gen_mask": _seeded,
    "npu_sim_exponential_": _exponential,
    "npu_random_choice_with_mask": _choice(20, 10, 30),
    "npu_random_choice_with_mask-few": _choice(256, 30),
    "npu_sub_sample": _labels,
    "npu_top_k_top_p": _filter(True, True, torch.float16),
    "npu_top_k_top_p-by_number": _filter(True, False, torch.float32),
    "npu_top_k_top_p-by_share": _filter(False, True, torch.bfloat16),
    "npu_top_k_top_p_sample": _sample(True, is_need_logits=True),
    "npu_top_k_top_p_sample-greatest": _sample(False, torch.float32),
    "npu_top_k_top_p_sample-multinomial": _sample(
        False, post_sample="multiNomial", is_need_logits=True, min_ps=torch.tensor([0.1, 0.0, 0.4, 0.2]).half()
    ),
}
