"""Calls of activations and gates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tests.support.cann.draws import draw
from tests.support.cann.example_call import Call

HALF, BRAIN, SINGLE = torch.float16, torch.bfloat16, torch.float32


def _pointwise(count: int = 1, dtype: torch.dtype = HALF, **kwargs: Any) -> Callable[[torch.Generator], Call]:
    return lambda g: Call(tuple(draw(g, 3, 8, dtype=dtype) for _ in range(count)), kwargs)


def _geglu_grad(generator: torch.Generator, approximate: int, *, left: bool) -> Call:
    x = draw(generator, 3, 8)
    halves = x.chunk(2, -1)
    activated = halves[0 if left else 1]
    gelu = torch.nn.functional.gelu(activated, approximate="tanh" if approximate else "none")
    return Call((draw(generator, 3, 4), x, gelu, -1, approximate, left))


def _one(*shape: int, dtype: torch.dtype = torch.float16, **kwargs: object) -> Callable[[torch.Generator], Call]:
    """Return what makes a call with one tensor of this shape."""

    def call(generator: torch.Generator) -> Call:
        return Call((torch.randn(shape, generator=generator).to(dtype),), kwargs, differentiate=True)

    return call


def _softmax(generator: torch.Generator) -> Call:
    x = torch.randn(2, 3, 32, 64, generator=generator).half()
    mask = torch.randint(0, 2, (2, 1, 32, 64), generator=generator).bool()
    return Call((x, mask, 0.25), differentiate=True)


EXAMPLES: dict[str, Callable[[torch.Generator], Call]] = {
    "npu_fast_gelu": _one(2, 3),
    "npu_fast_gelu-float32": _one(8, 16, dtype=torch.float32),
    "npu_gelu": _one(2, 8),
    "npu_gelu-tanh": _one(4, 8, dtype=torch.bfloat16, approximate="tanh"),
    "npu_geglu": _one(2, 10, 16),
    "npu_geglu-left": _one(2, 10, 4, dim=1, approximate=0, activate_left=True),
    "npu_silu": _one(2, 8),
    "npu_swiglu": _one(2, 32, 6, 10),
    "npu_swiglu-first": _one(4, 5, dtype=torch.bfloat16, dim=0),
    "npu_mish": _one(10, 30, dtype=torch.float32),
    "npu_scaled_masked_softmax": _softmax,
    "npu_silu_": lambda g: Call((draw(g, 3, 8, dtype=HALF),)),
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
}
