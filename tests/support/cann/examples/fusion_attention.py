"""Calls of fused attention, by layout and by what is hidden."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tests.support.cann.example_call import Call

Example = Callable[[torch.Generator], Call]


def _of(query: tuple[int, ...], key: tuple[int, ...], layout: str, heads: int, **arguments: Any) -> Example:
    """Return what makes a call by shapes; key and value have the same."""

    def call(generator: torch.Generator) -> Call:
        tensors = [torch.randn(shape, generator=generator).half() for shape in (query, key, key)]
        return Call((*tensors, heads, layout), {"scale": 0.25, **arguments}, differentiate=True)

    return call


_TRIANGLE = torch.ones(2048, 2048).triu(1).bool()
EXAMPLES: dict[str, Example] = {
    "npu_fusion_attention": _of((2, 4, 5, 16), (2, 4, 7, 16), "BNSD", 4),
    "npu_fusion_attention-bsh": _of((2, 5, 64), (2, 5, 32), "BSH", 4, atten_mask=torch.ones(5, 5).triu(1).bool()),
    "npu_fusion_attention-sbh": _of((5, 2, 32), (5, 2, 32), "SBH", 2, pse=torch.ones(2, 2, 5, 5).half()),
    "npu_fusion_attention-band": _of(
        (1, 6, 2, 16), (1, 8, 2, 16), "BSND", 2, atten_mask=_TRIANGLE, sparse_mode=4, pre_tockens=3, next_tockens=0
    ),
    "npu_fusion_attention-packed": _of(
        (9, 2, 16),
        (11, 1, 16),
        "TND",
        2,
        atten_mask=_TRIANGLE,
        sparse_mode=3,
        actual_seq_qlen=[4, 9],
        actual_seq_kvlen=[5, 11],
    ),
    "npu_fusion_attention-sink": _of((1, 2, 4, 16), (1, 2, 4, 16), "BNSD", 2, sink=torch.tensor([0.5, -0.5])),
}
