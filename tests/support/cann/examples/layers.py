"""Calls of activations, losses, matrix products of batches and rotary embeddings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tests.support.cann.example_call import Call

HALF, BRAIN, SINGLE = torch.float16, torch.bfloat16, torch.float32


def _draw(generator: torch.Generator, *shape: int, dtype: torch.dtype = SINGLE) -> Tensor:
    return torch.randn(shape, generator=generator).to(dtype)


def _pointwise(count: int = 1, dtype: torch.dtype = HALF, **kwargs: Any) -> Callable[[torch.Generator], Call]:
    return lambda g: Call(tuple(_draw(g, 3, 8, dtype=dtype) for _ in range(count)), kwargs, differentiate=count == 1)


def _geglu_grad(generator: torch.Generator, approximate: int, *, left: bool) -> Call:
    x = _draw(generator, 3, 8)
    halves = x.chunk(2, -1)
    activated = halves[0 if left else 1]
    gelu = torch.nn.functional.gelu(activated, approximate="tanh" if approximate else "none")
    return Call((_draw(generator, 3, 4), x, gelu, -1, approximate, left))


def _softmax_loss(generator: torch.Generator, *, backward: bool = False) -> Call:
    labels = torch.softmax(_draw(generator, 5, 6), -1)
    logits = _draw(generator, 5, 6)
    return Call((_draw(generator, 5), logits, labels)) if backward else Call((logits, labels), differentiate=True)


def _binary(generator: torch.Generator, reduction: int, *, weighted: bool = False) -> Call:
    weights = (torch.rand(3, 4, generator=generator), torch.rand(4, generator=generator) * 3)
    grad = _draw(generator, 3, 4) if reduction == 0 else _draw(generator)
    target = torch.rand(3, 4, generator=generator)
    return Call((grad, _draw(generator, 3, 4), target, *(weights if weighted else (None, None)), reduction))


def _cross_entropy(generator: torch.Generator, dtype: torch.dtype = SINGLE, **kwargs: Any) -> Call:
    if kwargs.pop("weighted", False):
        kwargs["weight"] = torch.rand(7, generator=generator) + 0.1
    target = torch.tensor([2, 0, 6, 3, 2])
    return Call((_draw(generator, 5, 7, dtype=dtype), target), kwargs, differentiate=True)


def _cross_entropy_backward(generator: torch.Generator, reduction: str = "mean", **kwargs: Any) -> Call:
    if kwargs.pop("weighted", False):
        kwargs["weight"] = torch.rand(7, generator=generator) + 0.1
    log_prob = torch.log_softmax(_draw(generator, 5, 7), -1)
    grad = _draw(generator, 5 if reduction == "none" else 1)
    return Call((grad, log_prob, torch.tensor([2, 0, 6, 3, 2])), {"reduction": reduction, **kwargs})


def _products(generator: torch.Generator, *, of: str = "") -> Call:
    left, right = _draw(generator, 3, 4, 5), _draw(generator, 1, 5, 6)
    if not of:
        return Call((left, right, []), differentiate=True)
    size = left.shape if of == "left" else right.shape
    return Call((_draw(generator, 3, 4, 6), left, right, list(size)))


def _transposed(generator: torch.Generator) -> Call:
    x, weight = _draw(generator, 4, 3, 8, dtype=HALF), _draw(generator, 3, 8, 6, dtype=HALF)
    return Call((x, weight), {"perm_x1": [1, 0, 2], "perm_y": [1, 0, 2]})


def _rotary(generator: torch.Generator, heads: int, dtype: torch.dtype = BRAIN) -> tuple[Tensor, Tensor]:
    angle = torch.rand(2, 5, heads, 4, generator=generator)
    angles = torch.cat((angle, angle), -1)
    return angles.cos().to(dtype), angles.sin().to(dtype)


def _in_place_rotary(generator: torch.Generator) -> Call:
    query, key = (_draw(generator, 2, 5, heads, 8, dtype=BRAIN) for heads in (4, 2))
    return Call((query, key, *_rotary(generator, 1)))


def _mrope(generator: torch.Generator, **kwargs: Any) -> Call:
    sectioned = "mrope_section" in kwargs
    positions = torch.randint(0, 9, (3, 5) if sectioned else (5,), generator=generator)
    angles = torch.rand(9, 6, generator=generator)
    cache = torch.cat((angles.cos(), angles.sin()), -1)
    return Call((positions, _draw(generator, 5, 32), _draw(generator, 5, 16), cache, 16), kwargs)


def _adam_w(generator: torch.Generator, **kwargs: Any) -> Call:
    var, m, grad = (_draw(generator, 3, 4) for _ in range(3))
    v, largest = (torch.rand(3, 4, generator=generator) for _ in range(2))
    numbers = (0.9, 0.999, 0.01, 0.1, 0.9, 0.999, 1e-8)
    is_bounded = bool(kwargs.get("amsgrad"))
    more = (largest if is_bounded else None, is_bounded, bool(kwargs.get("maximize")))
    return Call((*numbers, grad, *more), {"out": (var, m, v)})


EXAMPLES: dict[str, Callable[[torch.Generator], Call]] = {
    "npu_silu_": lambda g: Call((_draw(g, 3, 8, dtype=HALF),)),
    "npu_silu_backward": _pointwise(3, BRAIN),
    "npu_mish_backward": _pointwise(2, SINGLE),
    "npu_gelu_backward": _pointwise(2),
    "npu_gelu_backward-tanh": _pointwise(2, SINGLE, approximate="tanh"),
    "npu_geglu_grad": lambda g: _geglu_grad(g, 1, left=False),
    "npu_geglu_grad-erf": lambda g: _geglu_grad(g, 0, left=True),
    "npu_gelu_mul": _pointwise(),
    "npu_gelu_mul-tanh": _pointwise(1, BRAIN, approximate="tanh"),
    "npu_clipped_swiglu": _pointwise(1, SINGLE, limit=0.9),
    "npu_clipped_swiglu-halves": _pointwise(1, BRAIN, interleaved=False),
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
    "npu_bmm_v2_mat1_backward": lambda g: _products(g, of="left"),
    "npu_bmm_v2_mat2_backward": lambda g: _products(g, of="right"),
    "npu_transpose_batchmatmul": _transposed,
    "npu_interleave_rope": lambda g: Call((_draw(g, 2, 5, 4, 8, dtype=BRAIN), *_rotary(g, 4))),
    "npu_apply_rotary_pos_emb": _in_place_rotary,
    "npu_mrope": lambda g: _mrope(g),
    "npu_mrope-sections": lambda g: _mrope(g, mrope_section=[2, 2, 2], rotary_mode="interleave"),
    "npu_apply_adam_w": lambda g: _adam_w(g),
    "npu_apply_adam_w-amsgrad": lambda g: _adam_w(g, amsgrad=True, maximize=True),
}
