"""Calls of rotary embeddings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tests.support.cann.draws import draw
from tests.support.cann.example_call import Call

HALF, BRAIN, SINGLE = torch.float16, torch.bfloat16, torch.float32


def _rotary(generator: torch.Generator, heads: int, dtype: torch.dtype = BRAIN) -> tuple[Tensor, Tensor]:
    angle = torch.rand(2, 5, heads, 4, generator=generator)
    angles = torch.cat((angle, angle), -1)
    return angles.cos().to(dtype), angles.sin().to(dtype)


def _in_place_rotary(generator: torch.Generator) -> Call:
    query, key = (draw(generator, 2, 5, heads, 8, dtype=BRAIN) for heads in (4, 2))
    return Call((query, key, *_rotary(generator, 1)))


def _mrope(generator: torch.Generator, **kwargs: Any) -> Call:
    sectioned = "mrope_section" in kwargs
    positions = torch.randint(0, 9, (3, 5) if sectioned else (5,), generator=generator)
    angles = torch.rand(9, 6, generator=generator)
    cache = torch.cat((angles.cos(), angles.sin()), -1)
    return Call((positions, draw(generator, 5, 32), draw(generator, 5, 16), cache, 16), kwargs)


EXAMPLES: dict[str, Callable[[torch.Generator], Call]] = {
    "npu_interleave_rope": lambda g: Call((draw(g, 2, 5, 4, 8, dtype=BRAIN), *_rotary(g, 4))),
    "npu_apply_rotary_pos_emb": _in_place_rotary,
    "npu_mrope": lambda g: _mrope(g),
    "npu_mrope-sections": lambda g: _mrope(g, mrope_section=[2, 2, 2], rotary_mode="interleave"),
}
