"""Calls of native sparse attention: compression, compressed and selected attention, in small shapes."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Generator, Tensor

from tests.support.cann.example_call import Call
from tests.support.cann.examples.sparse_attention import chosen, draw
from tests.support.cann.operators import native_sparse_attention as kernels

HALF, BRAIN = torch.float16, torch.bfloat16
ENDS = [40, 50, 114]


def compress(dtype: torch.dtype) -> Callable[[Generator], Call]:
    def example(g: Generator) -> Call:
        x, w = draw(g, 114, 2, 16, dtype=dtype), draw(g, 32, 2, dtype=dtype)
        return Call((x, w, 32, 16), {"actual_seq_len": ENDS}, differentiate=True)

    return example


def compress_gradient(g: Generator) -> Call:
    call = compress(HALF)(g)
    out = kernels.npu_nsa_compress(*call.args, **call.kwargs)
    return Call((draw(g, *out.shape), *call.args), call.kwargs)


def compress_decoding(g: Generator) -> Call:
    pages, weight = draw(g, 6, 64, 2, 16), draw(g, 32, 2)
    options = {
        "block_table": torch.tensor([[0, 4], [5, 1], [2, 3]]).int(),
        "actual_seq_len": [80, 64, 43],
        "cache": draw(g, 5, 2, 16),
    }
    return Call((pages, weight, torch.tensor([3, 0, 1]).int(), 32, 16, 64), options)


def compressed(masked: bool) -> Callable[[Generator], Call]:
    def example(g: Generator) -> Call:
        q, k, v = (draw(g, *shape, dtype=BRAIN) for shape in ((9, 4, 32), (23, 2, 32), (23, 2, 16)))
        lengths = {"actual_seq_qlen": [4, 9], "actual_cmp_seq_kvlen": [12, 23], "actual_sel_seq_kvlen": [3, 6]}
        options = {}
        if masked:
            options["atten_mask"] = torch.ones(5, 12).triu(3).bool()
            options["topk_mask"] = torch.eye(5, 3).bool()
        return Call((q, k, v, 0.2, 4, 32, 16, 64, 2), {**lengths, **options}, differentiate=not masked)

    return example


def compressed_decoding(layout: str) -> Callable[[Generator], Call]:
    def example(g: Generator) -> Call:
        q = draw(g, 2, 4, 32) if layout == "TND" else draw(g, 2, 1, 4, 32)
        k, v = draw(g, 6, 16, 2 * 32), draw(g, 6, 16, 2 * 16)
        table = torch.tensor([[5, 0, 2], [1, 4, 3]]).int()
        options = {"layout": layout, "block_table": table, "actual_cmp_seq_kvlen": [40, 33]}
        return Call((q, k, v, 0.2, 4, 2, 64, 6, 16, 32, 16), options)

    return example


def selected_tensors(g: Generator) -> tuple[Tensor, ...]:
    shapes = ((7, 4, 32), (160, 2, 32), (160, 2, 16))
    indices = torch.cat([chosen(g, [(96, 0)] * 3, 2, 3, 16), chosen(g, [(64, 0)] * 4, 2, 3, 16)])
    return (*(draw(g, *shape, dtype=BRAIN) for shape in shapes), indices)


def selected(g: Generator) -> Call:
    lengths = {"actual_seq_qlen": [3, 7], "actual_seq_kvlen": [96, 160]}
    return Call((*selected_tensors(g), 0.2, 4, 16, 3), lengths, differentiate=True)


def selected_gradient(g: Generator) -> Call:
    call = selected(g)
    out, maximum, total = kernels.npu_nsa_select_attention(*call.args, **call.kwargs)
    q, k, v, indices, *sizes = call.args
    return Call((draw(g, *out.shape, dtype=BRAIN), q, k, v, out, maximum, total, indices, *sizes), call.kwargs)


def selected_decoding(layout: str) -> Callable[[Generator], Call]:
    def example(g: Generator) -> Call:
        shape = {"BSND": (2, 1, 4, 32), "BSH": (2, 1, 128), "TND": (2, 4, 32)}[layout]
        k, v = draw(g, 4, 64, 2, 32), draw(g, 4, 64, 2, 16)
        k, v = (k.flatten(2), v.flatten(2)) if layout == "BSH" else (k, v)
        indices = chosen(g, [(82, 0), (128, 0)], 2, 3, 32)
        options = {
            "layout": layout,
            "block_table": torch.tensor([[1, 0], [3, 2]]).int(),
            "actual_seq_kvlen": [82, 128],
        }
        return Call((draw(g, *shape), k, v, indices, 0.2, 4, 2, 32, 3, 64), options)

    return example


EXAMPLES: dict[str, Callable[[Generator], Call]] = {
    "npu_nsa_compress": compress(HALF),
    "npu_nsa_compress-bfloat16": compress(BRAIN),
    "npu_nsa_compress_grad": compress_gradient,
    "npu_nsa_compress_infer": compress_decoding,
    "npu_nsa_compress_attention": compressed(masked=False),
    "npu_nsa_compress_attention-masked": compressed(masked=True),
    "npu_nsa_compress_attention_infer": compressed_decoding("TND"),
    "npu_nsa_compress_attention_infer-batched": compressed_decoding("BSND"),
    "npu_nsa_select_attention": selected,
    "npu_nsa_select_attention_grad": selected_gradient,
    "npu_nsa_select_attention_infer": selected_decoding("BSND"),
    "npu_nsa_select_attention_infer-flat": selected_decoding("BSH"),
    "npu_nsa_select_attention_infer-packed": selected_decoding("TND"),
}
