"""Calls of the later versions of fused attention and of their gradients, in small shapes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Generator, Tensor

from tests.support.cann.example_call import Call
from tests.support.cann.examples.sparse_attention import draw

HALF, BRAIN = torch.float16, torch.bfloat16
TRIANGLE = torch.ones(2048, 2048, dtype=torch.bool).triu(1)
PACKED = {"actual_seq_qlen": [3, 5], "actual_seq_kvlen": [4, 7]}


def tensors(g: Generator, layout: str, dtype: torch.dtype = HALF) -> tuple[Tensor, Tensor, Tensor]:
    """Queries of four heads and keys and values of two."""
    shapes = {
        "BNSD": ((2, 4, 3, 16), (2, 2, 5, 16), (2, 2, 5, 8)),
        "BSND": ((2, 3, 4, 16), (2, 5, 2, 16), (2, 5, 2, 8)),
        "BSH": ((2, 3, 64), (2, 5, 32), (2, 5, 32)),
        "SBH": ((3, 2, 64), (5, 2, 32), (5, 2, 32)),
        "TND": ((5, 4, 16), (7, 2, 16), (7, 2, 8)),
    }[layout]
    q, k, v = (draw(g, *shape, dtype=dtype) for shape in shapes)
    return q, k, v


def biased(g: Generator) -> tuple[tuple[Any, ...], dict[str, Any]]:
    pse, sink = draw(g, 2, 4, 3, 5), torch.randn(4, generator=g)
    mask = torch.rand(2, 1, 3, 5, generator=g) < 0.3
    return (*tensors(g, "BNSD"), 4, "BNSD"), {"pse": pse, "sink": sink, "atten_mask": mask, "sparse_mode": 1}


def flat(layout: str) -> Callable[[Generator], tuple[tuple[Any, ...], dict[str, Any]]]:
    return lambda g: ((*tensors(g, layout), 4, layout), {})


def packed(g: Generator) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return (*tensors(g, "TND", BRAIN), 4, "TND"), {**PACKED, "atten_mask": TRIANGLE, "sparse_mode": 3}


def packed_by_tensors(g: Generator) -> tuple[tuple[Any, ...], dict[str, Any]]:
    args, options = packed(g)
    return args, {**options, **{name: torch.tensor(ends) for name, ends in PACKED.items()}}


def roped(g: Generator) -> tuple[tuple[Any, ...], dict[str, Any]]:
    ropes = {"query_rope": draw(g, 5, 4, 8, dtype=BRAIN), "key_rope": draw(g, 7, 2, 8, dtype=BRAIN)}
    args, options = packed(g)
    return args, {**options, **ropes}


def forward(made: Callable[[Generator], tuple[tuple[Any, ...], dict[str, Any]]], **more: Any) -> Callable[..., Call]:
    def example(g: Generator) -> Call:
        args, options = made(g)
        return Call(args, {**options, "scale": 0.25, **more}, differentiate=True)

    return example


def gradient(made: Callable[[Generator], tuple[tuple[Any, ...], dict[str, Any]]], **more: Any) -> Callable[..., Call]:
    def example(g: Generator) -> Call:
        (q, k, v, heads, layout), options = made(g)
        width = v.shape[-1] * heads // 2 if layout in ("BSH", "SBH") else v.shape[-1]
        dy = draw(g, *q.shape[:-1], width, dtype=q.dtype)
        return Call((q, k, v, dy, heads, layout), {**options, "scale_value": 0.25, **more})

    return example


EXAMPLES: dict[str, Callable[[Generator], Call]] = {
    "npu_fusion_attention_v2": forward(biased),
    "npu_fusion_attention_v2-added": forward(biased, pse_type=0),
    "npu_fusion_attention_v2-packed": forward(packed, softmax_layout="TND"),
    "npu_fusion_attention_v2-roped": forward(roped),
    "npu_fusion_attention_v3": forward(biased),
    "npu_fusion_attention_v3-packed": forward(packed_by_tensors),
    "npu_fusion_attention_v3-flat": forward(flat("BSH")),
    "npu_fusion_attention_v3-tokens": forward(flat("BSND")),
    "npu_fusion_attention_grad_v2": gradient(biased),
    "npu_fusion_attention_grad_v2-added": gradient(biased, pse_type=0),
    "npu_fusion_attention_grad_v2-roped": gradient(roped),
    "npu_fusion_attention_grad_v3": gradient(biased),
    "npu_fusion_attention_grad_v3-flat": gradient(flat("SBH")),
    "npu_fusion_attention_grad_v3-packed": gradient(packed_by_tensors),
}
