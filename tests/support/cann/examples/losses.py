"""Calls of losses, and of the matrix product of batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tests.support.cann.draws import draw
from tests.support.cann.example_call import Call

HALF, BRAIN, SINGLE = torch.float16, torch.bfloat16, torch.float32


def _softmax_loss(generator: torch.Generator, *, backward: bool = False) -> Call:
    labels = torch.softmax(draw(generator, 5, 6), -1)
    logits = draw(generator, 5, 6)
    return Call((draw(generator, 5), logits, labels)) if backward else Call((logits, labels))


def _binary(generator: torch.Generator, reduction: int, *, weighted: bool = False) -> Call:
    weights = (torch.rand(3, 4, generator=generator), torch.rand(4, generator=generator) * 3)
    grad = draw(generator, 3, 4) if reduction == 0 else draw(generator)
    target = torch.rand(3, 4, generator=generator)
    return Call((grad, draw(generator, 3, 4), target, *(weights if weighted else (None, None)), reduction))


def _cross_entropy(generator: torch.Generator, dtype: torch.dtype = SINGLE, **kwargs: Any) -> Call:
    if kwargs.pop("weighted", False):
        kwargs["weight"] = torch.rand(7, generator=generator) + 0.1
    target = torch.tensor([2, 0, 6, 3, 2])
    return Call((draw(generator, 5, 7, dtype=dtype), target), kwargs, differentiate=True)


def _cross_entropy_backward(generator: torch.Generator, reduction: str = "mean", **kwargs: Any) -> Call:
    if kwargs.pop("weighted", False):
        kwargs["weight"] = torch.rand(7, generator=generator) + 0.1
    log_prob = torch.log_softmax(draw(generator, 5, 7), -1)
    grad = draw(generator, 5 if reduction == "none" else 1)
    return Call((grad, log_prob, torch.tensor([2, 0, 6, 3, 2])), {"reduction": reduction, **kwargs})


def _products(generator: torch.Generator) -> Call:
    return Call((draw(generator, 3, 4, 5), draw(generator, 1, 5, 6), []), differentiate=True)


EXAMPLES: dict[str, Callable[[torch.Generator], Call]] = {
    "npu_softmax_cross_entropy_with_logits": lambda g: _softmax_loss(g),
    "npu_softmax_cross_entropy_with_logits_backward": lambda g: _softmax_loss(g, backward=True),
    "npu_binary_cross_entropy_with_logits_backward": lambda g: _binary(g, 1),
    "npu_binary_cross_entropy_with_logits_backward-weighted": lambda g: _binary(g, 0, weighted=True),
    "npu_cross_entropy_loss": lambda g: _cross_entropy(g, HALF),
    "npu_cross_entropy_loss-none": lambda g: _cross_entropy(
        g, weighted=True, reduction="none", ignore_index=3, label_smoothing=0.2
    ),
    "npu_cross_entropy_loss_backward": lambda g: _cross_entropy_backward(g),
    "npu_cross_entropy_loss_backward-none": lambda g: _cross_entropy_backward(
        g, "none", weighted=True, ignore_index=3, label_smoothing=0.2
    ),
    "npu_bmmV2": lambda g: _products(g),
}
