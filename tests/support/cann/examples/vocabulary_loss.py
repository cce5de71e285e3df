"""Calls of the parts of a cross entropy whose vocabulary is spread over ranks."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Generator, Tensor

from tests.support.cann.example_call import Call
from tests.support.cann.examples.quantized_products import half, positive, single

_TARGET = torch.tensor([3, 0, 9, 12, 5, 4, 11, 8, 6, 7])
_MASK = torch.tensor([0b01100001, 0b10111111], dtype=torch.uint8)


def shares(g: Generator, *shape: int) -> Tensor:
    """Return rows of positive numbers with a sum of 1."""
    return single(g, *shape).softmax(-1)


EXAMPLES: dict[str, Callable[[Generator], Call]] = {
    "npu_fused_linear_online_max_sum": lambda g: Call((half(g, 10, 16), half(g, 6, 16), _TARGET.int(), 4, 9, True)),
    "npu_fused_linear_online_max_sum-small": lambda g: Call(
        (half(g, 10, 16).bfloat16(), half(g, 6, 16).bfloat16(), _TARGET, 4, 9)
    ),
    "npu_fused_cross_entropy_loss_with_max_sum": lambda g: Call((single(g, 10), positive(g, 10), -positive(g, 10))),
    "npu_fused_cross_entropy_loss_with_max_sum-softmax": lambda g: Call(
        (positive(g, 10) + 3, positive(g, 10), -positive(g, 10)), {"vocab_parallel_logits": half(g, 10, 6)}
    ),
    "npu_fused_linear_cross_entropy_loss_with_max_sum_backward": lambda g: Call(
        (
            single(g, 10), half(g, 10, 16), half(g, 6, 16), _MASK,
            torch.arange(10, dtype=torch.int32) % 6,
        ),
        {"softmax": shares(g, 10, 6)},
    ),
    "npu_fused_linear_cross_entropy_loss_with_max_sum_backward-small": lambda g: Call(
        (
            single(g, 10), half(g, 10, 16) / 4, half(g, 6, 16), _MASK,
            torch.arange(10) % 6,
        ),
        {"logits_max": positive(g, 10) + 3, "sum_exp_logits": positive(g, 10)},
    ),
}  # fmt: skip
