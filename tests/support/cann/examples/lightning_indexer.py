"""Calls of the lightning indexer and of the loss that trains it, in small shapes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Generator, Tensor

from tests.support.cann.example_call import Call
from tests.support.cann.examples.sparse_attention import causal, chosen, draw
from tests.support.cann.operators import lightning_indexer as kernels

HALF, BRAIN = torch.float16, torch.bfloat16
PACKED = {"actual_seq_lengths_query": torch.tensor([3, 8]).int(), "actual_seq_lengths_key": torch.tensor([6, 13]).int()}


def indexer_batched(g: Generator) -> Call:
    q, k, w = draw(g, 2, 6, 8, 32), draw(g, 2, 9, 1, 32), draw(g, 2, 6, 8)
    return Call((q, k, w), {"sparse_count": 5, "return_value": True}, differentiate=True)


def indexer_packed(g: Generator) -> Call:
    q, k, w = draw(g, 8, 8, 32, dtype=BRAIN), draw(g, 13, 1, 32, dtype=BRAIN), draw(g, 8, 8, dtype=BRAIN)
    layouts = {"layout_query": "TND", "layout_key": "TND", "sparse_count": 4, "return_value": True}
    return Call((q, k, w), {**PACKED, **layouts}, differentiate=True)


def indexer_paged(g: Generator) -> Call:
    q, k, w = draw(g, 2, 2, 4, 32), draw(g, 5, 16, 1, 32), draw(g, 2, 2, 4)
    return Call((q, k, w), {**paged(), "sparse_mode": 0, "sparse_count": 40})


def paged() -> dict[str, Any]:
    return {
        "actual_seq_lengths_query": torch.tensor([2, 1]).int(),
        "actual_seq_lengths_key": torch.tensor([30, 17]).int(),
        "block_table": torch.tensor([[4, 1], [0, 3]]).int(),
        "layout_key": "PA_BSND",
    }


def indexer_quantized(layout: str) -> Callable[[Generator], Call]:
    def example(g: Generator) -> Call:
        shape = (2, 20) if layout == "BSND" else (5, 16)
        q, k = (torch.randint(-127, 128, each, generator=g).to(torch.int8) for each in ((2, 2, 8, 32), (*shape, 1, 32)))
        w, q_scale = draw(g, 2, 2, 8), (torch.rand(2, 2, 8, generator=g) / 100 + 0.001).to(HALF)
        k_scale = (torch.rand(*shape, 1, generator=g) / 100 + 0.001).to(HALF)
        options = {} if layout == "BSND" else paged()
        return Call((q, k, w, q_scale, k_scale, 0, 0), {**options, "sparse_count": 7})

    return example


def indexer_gradient(forward: Callable[[Generator], Call]) -> Callable[[Generator], Call]:
    def example(g: Generator) -> Call:
        call = forward(g)
        indices, values = kernels.npu_lightning_indexer(*call.args, **call.kwargs)
        q, k, w = call.args
        options = {
            "actual_seq_lengths_query": call.kwargs.get("actual_seq_lengths_query"),
            "actual_seq_lengths_key": call.kwargs.get("actual_seq_lengths_key"),
            "layout": call.kwargs.get("layout_query", "BSND"),
        }
        return Call((q, k, torch.randn(values.shape, generator=g).to(q.dtype), indices, w), options)

    return example


def statistics_of_index(layout: str, mode: int) -> Callable[[Generator], Call]:
    def example(g: Generator) -> Call:
        q, k, w, options = indexer_of_loss(g, layout)
        return Call((q, k, w), {**options, "sparse_mode": mode})

    return example


def indexer_of_loss(g: Generator, layout: str) -> tuple[Tensor, Tensor, Tensor, dict[str, Any]]:
    if layout == "TND":
        options = {"actual_seq_qlen": [3, 7], "actual_seq_klen": [4, 10], "layout": "TND"}
        return draw(g, 7, 4, 32) / 4, draw(g, 10, 1, 32) / 4, draw(g, 7, 4), options
    return draw(g, 2, 4, 4, 32) / 4, draw(g, 2, 6, 1, 32) / 4, draw(g, 2, 4, 4), {}


def attention_of_loss(g: Generator, layout: str, shared: int) -> tuple[tuple[Tensor, ...], dict[str, Tensor]]:
    """Query, key, maximum and sum of an attention whose heads have ``shared`` keys, and its ropes."""
    rows, columns = ((7,), (10,)) if layout == "TND" else ((2, 4), (2, 6))
    tensors = [draw(g, *rows, 4, 32), draw(g, *columns, shared, 32)]
    ropes = {"query_rope": draw(g, *rows, 4, 16), "key_rope": draw(g, *columns, shared, 16)}
    shape = (shared, 7, 4 // shared) if layout == "TND" else (2, shared, 4, 4 // shared)
    maximum = torch.rand(shape, generator=g) + 1.5
    return (*tensors, maximum, torch.rand(shape, generator=g) + 2.0), ropes


def dense_loss(layout: str) -> Callable[[Generator], Call]:
    def example(g: Generator) -> Call:
        qi, ki, w, options = indexer_of_loss(g, layout)
        (q, k, maximum, total), ropes = attention_of_loss(g, layout, 4)
        of_index = kernels.npu_dense_lightning_indexer_softmax_lse(qi, ki, w, **options)
        return Call((q, k, qi, ki, w, maximum, total, *of_index, 0.1), {**options, **ropes})

    return example


def sparse_loss(layout: str, roped: bool) -> Callable[[Generator], Call]:
    def example(g: Generator) -> Call:
        qi, ki, w, options = indexer_of_loss(g, layout)
        (q, k, maximum, total), ropes = attention_of_loss(g, layout, 1)
        if layout == "TND":
            indices = torch.cat([chosen(g, causal(3, 4), 1, 3), chosen(g, causal(4, 6), 1, 3)])
        else:
            indices = chosen(g, causal(4, 6) * 2, 1, 3).reshape(2, 4, 1, 3)
        return Call((q, k, qi, ki, w, indices, maximum, total, 0.1), {**options, **(ropes if roped else {})})

    return example


EXAMPLES: dict[str, Callable[[Generator], Call]] = {
    "npu_lightning_indexer-batched": indexer_batched,
    "npu_lightning_indexer-packed": indexer_packed,
    "npu_lightning_indexer-paged": indexer_paged,
    "npu_lightning_indexer_grad-batched": indexer_gradient(indexer_batched),
    "npu_lightning_indexer_grad-packed": indexer_gradient(indexer_packed),
    "npu_quant_lightning_indexer": indexer_quantized("BSND"),
    "npu_quant_lightning_indexer-paged": indexer_quantized("PA_BSND"),
    "npu_dense_lightning_indexer_softmax_lse": statistics_of_index("BSND", 3),
    "npu_dense_lightning_indexer_softmax_lse-packed": statistics_of_index("TND", 3),
    "npu_dense_lightning_indexer_softmax_lse-all": statistics_of_index("BSND", 0),
    "npu_dense_lightning_indexer_grad_kl_loss": dense_loss("BSND"),
    "npu_dense_lightning_indexer_grad_kl_loss-packed": dense_loss("TND"),
    "npu_sparse_lightning_indexer_grad_kl_loss": sparse_loss("BSND", roped=True),
    "npu_sparse_lightning_indexer_grad_kl_loss-packed": sparse_loss("TND", roped=False),
}
