"""Calls of activations and gates."""

from __future__ import annotations

from collections.abc import Callable

import torch

from tests.support.cann.example_call import Call


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
}
