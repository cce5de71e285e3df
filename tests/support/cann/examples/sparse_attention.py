"""Calls of sparse, block sparse and Floyd attention and of ring attention's merging, in small shapes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Generator, Tensor

from tests.support.cann import draws
from tests.support.cann.example_call import Call
from tests.support.cann.operators import sparse_attention as kernels

HALF, BRAIN = torch.float16, torch.bfloat16

draw = partial(draws.draw, dtype=HALF)


def chosen(g: Generator, rows: list[tuple[int, int]], heads: int, count: int, size: int = 1) -> Tensor:
    """Distinct blocks for each row, given how many keys it sees, -1 behind the last."""
    found = torch.full((len(rows), heads, count), -1, dtype=torch.int32)
    for row, (limit, _) in enumerate(rows):
        for head in range(heads):
            places = torch.randperm(-(-max(limit, 0) // size), generator=g)[:count].int()
            found[row, head, : len(places)] = places
    return found


def causal(queries: int, keys: int) -> list[tuple[int, int]]:
    return [(keys - queries + row + 1, row) for row in range(queries)]


def flash_batched(g: Generator) -> Call:
    q, k, qr, kr = draw(g, 2, 5, 4, 32), draw(g, 2, 7, 1, 32), draw(g, 2, 5, 4, 16), draw(g, 2, 7, 1, 16)
    indices = chosen(g, causal(5, 7) * 2, 1, 4).reshape(2, 5, 1, 4)
    options = {"query_rope": qr, "key_rope": kr, "attention_mode": 2, "return_softmax_lse": True}
    return Call((q, k, k.clone(), indices, 0.2), options, differentiate=True)


def flash_packed(g: Generator) -> Call:
    q, k, v = draw(g, 7, 4, 16, dtype=BRAIN), draw(g, 12, 2, 16, dtype=BRAIN), draw(g, 12, 2, 16, dtype=BRAIN)
    indices = torch.cat([chosen(g, causal(3, 5), 2, 3), chosen(g, causal(4, 7), 2, 3)])
    ends = {
        "actual_seq_lengths_query": torch.tensor([3, 7]).int(),
        "actual_seq_lengths_kv": torch.tensor([5, 12]).int(),
    }
    layouts = {"layout_query": "TND", "layout_kv": "TND", "return_softmax_lse": True}
    return Call((q, k, v, indices, 0.25), ends | layouts, differentiate=True)


def flash_paged(g: Generator) -> Call:
    q, k, qr, kr = draw(g, 2, 1, 8, 32), draw(g, 5, 16, 1, 32), draw(g, 2, 1, 8, 16), draw(g, 5, 16, 1, 16)
    indices = chosen(g, [(29, 0), (16, 0)], 1, 6, 4).reshape(2, 1, 1, 6)
    options = {
        "block_table": torch.tensor([[3, 0], [4, 2]]).int(),
        "actual_seq_lengths_query": torch.tensor([1, 1]).int(),
        "actual_seq_lengths_kv": torch.tensor([29, 16]).int(),
        "query_rope": qr,
        "key_rope": kr,
        "sparse_block_size": 4,
        "layout_kv": "PA_BSND",
        "attention_mode": 2,
    }
    return Call((q, k, k, indices, 0.2), options)


def flash_with_sinks(g: Generator) -> Call:
    q, k = draw(g, 1, 6, 4, 16), draw(g, 1, 4, 1, 16)
    indices = chosen(g, causal(6, 4), 1, 4).reshape(1, 6, 1, 4)
    sinks = torch.randn(4, generator=g)
    return Call((q, k, None, indices, 0.25), {"sinks": sinks, "return_softmax_lse": True})


def flash_uncovered(g: Generator) -> Call:
    q, k = draw(g, 2, 4, 2, 16), draw(g, 2, 6, 1, 16)
    indices = chosen(g, [(3, 0)] * 8, 1, 3).reshape(2, 4, 1, 3)
    lengths = {"actual_seq_lengths_query": torch.tensor([2, 4]), "actual_seq_lengths_kv": torch.tensor([6, 3])}
    return Call((q, k, k.clone(), indices, 0.3), {**lengths, "sparse_mode": 0, "return_softmax_lse": True})


def flash_gradient(forward: Callable[[Generator], Call]) -> Callable[[Generator], Call]:
    def example(g: Generator) -> Call:
        call = forward(g)
        out, maximum, total = kernels.npu_sparse_flash_attention(*call.args, **call.kwargs)
        d_out = torch.randn(out.shape, generator=g).to(out.dtype)
        q, k, v, indices, scale = call.args
        options = {
            "query_rope": call.kwargs.get("query_rope"),
            "key_rope": call.kwargs.get("key_rope"),
            "actual_seq_qlen": call.kwargs.get("actual_seq_lengths_query"),
            "actual_seq_kvlen": call.kwargs.get("actual_seq_lengths_kv"),
            "layout": call.kwargs.get("layout_query", "BSND"),
        }
        return Call((q, k, v, indices, d_out, out, maximum, total, scale, 1), options)

    return example


def flash_gradient_of_keys_alone(g: Generator) -> Call:
    call = flash_gradient(flash_batched)(g)
    q, k, _, *rest = call.args
    return Call((q, k, None, *rest), call.kwargs)


def quantized(dtype: torch.dtype, layout: str) -> Callable[[Generator], Call]:
    def example(g: Generator) -> Call:
        query = draw(g, 2, 1, 4, 128 + 32, dtype=dtype)
        whole = torch.randint(-127, 128, (4, 16, 1, 128), generator=g).to(torch.int8)
        rope = draw(g, 4, 16, 1, 32, dtype=dtype).view(torch.int8)
        scales = (torch.rand(4, 16, 1, 2, generator=g) / 50).view(torch.int8)
        key = torch.cat([whole, rope, scales], -1)
        key = key if layout == "PA_BSND" else key.reshape(2, 32, 1, -1)
        indices = chosen(g, [(27, 0), (32, 0)], 1, 8).reshape(2, 1, 1, 8)
        options = {
            "block_table": torch.tensor([[1, 3], [0, 2]]).int() if layout == "PA_BSND" else None,
            "actual_seq_lengths_query": torch.tensor([1, 1]).int(),
            "actual_seq_lengths_kv": torch.tensor([27, 32]).int(),
            "layout_kv": layout,
            "attention_mode": 2,
            "tile_size": 64,
            "rope_head_dim": 32,
        }
        return Call((query, key, key, indices, 0.1, 2, 2), options)

    return example


def blocks_batched(g: Generator) -> Call:
    q, k, v = draw(g, 1, 2, 6, 64), draw(g, 1, 2, 140, 64), draw(g, 1, 2, 140, 64)
    mask = torch.tensor([[[[1, 0], [0, 1], [1, 1]]] * 2]).to(torch.int8)
    options = {"q_input_layout": "BNSD", "kv_input_layout": "BNSD", "num_key_value_heads": 2, "scale_value": 0.125}
    return Call((q, k, v, mask, [2, 128]), {**options, "softmax_lse_flag": 1}, differentiate=True)


def blocks_packed(g: Generator) -> Call:
    q, k, v = draw(g, 7, 4, 64, dtype=BRAIN), draw(g, 140, 2, 64, dtype=BRAIN), draw(g, 140, 2, 64, dtype=BRAIN)
    mask = torch.randint(0, 2, (2, 4, 2, 2), generator=g).bool()
    lengths = {"actual_seq_lengths": [2, 5], "actual_seq_lengths_kv": [130, 10]}
    options = {"num_key_value_heads": 2, "scale_value": 0.125, "inner_precise": 0, "softmax_lse_flag": 1}
    return Call((q, k, v, mask, [4, 128]), {**lengths, **options}, differentiate=True)


def blocks_gradient(forward: Callable[[Generator], Call]) -> Callable[[Generator], Call]:
    def example(g: Generator) -> Call:
        call = forward(g)
        out, logarithm = kernels.npu_block_sparse_attention(*call.args, **call.kwargs)
        q, k, v, mask, shape = call.args
        lengths = [call.kwargs.get(name) for name in ("actual_seq_lengths", "actual_seq_lengths_kv")]
        layout, heads = call.kwargs.get("q_input_layout", "TND"), call.kwargs["num_key_value_heads"]
        d_out = torch.randn(out.shape, generator=g).to(out.dtype)
        return Call((d_out, q, k, v, out, logarithm, mask, shape, *lengths, layout, layout, heads, 0.125))

    return example


def floyd(masked: bool) -> Callable[[Generator], Call]:
    def example(g: Generator) -> Call:
        shapes = ((1, 2, 3, 4, 32), (1, 2, 3, 5, 32), (1, 2, 3, 5, 32), (1, 2, 5, 4, 32), (1, 2, 5, 4, 32))
        tensors = tuple(draw(g, *shape, dtype=BRAIN) for shape in shapes)
        mask = torch.rand(1, 1, 3, 1, 5, generator=g) < 0.4
        # A row that sees one key has no gradient: what a kernel gives there is the rounding of its saved output.
        mask[..., :2, :, :2] = False
        mask[..., 2, :, :] = True
        return Call(tensors, {"atten_mask": mask if masked else None, "scale_value": 0.18}, differentiate=True)

    return example


def floyd_gradient(g: Generator) -> Call:
    call = floyd(masked=True)(g)
    maximum, total, out = kernels.npu_fused_floyd_attention(*call.args, **call.kwargs)
    return Call((draw(g, *out.shape, dtype=BRAIN), *call.args, out, maximum, total), call.kwargs)


def statistics(g: Generator, *shape: int) -> list[Tensor]:
    """Maximum and sum of two parts, eight times each."""
    drawn = [torch.rand(*shape, 1, generator=g) + 0.3 for _ in range(4)]
    return [each.repeat_interleave(8, -1) for each in drawn]


def ring(layout: str, softmax_layout: str, dtype: torch.dtype) -> Callable[[Generator], Call]:
    def example(g: Generator) -> Call:
        shape = (4, 2, 32) if layout == "SBH" else (5, 2, 64)
        m1, s1, m2, s2 = statistics(g, 2, 2, 4) if layout == "SBH" else statistics(g, 5, 2)
        previous, current = draw(g, *shape, dtype=dtype), draw(g, *shape, dtype=dtype)
        ends = None if layout == "SBH" else torch.tensor([2, 5])
        options = {"actual_seq_qlen": ends, "input_layout": layout, "input_softmax_layout": softmax_layout}
        return Call((previous, m1, s1, current, m2, s2), options)

    return example


EXAMPLES: dict[str, Callable[[Generator], Call]] = {
    "npu_sparse_flash_attention-batched": flash_batched,
    "npu_sparse_flash_attention-packed": flash_packed,
    "npu_sparse_flash_attention-paged": flash_paged,
    "npu_sparse_flash_attention-sinks": flash_with_sinks,
    "npu_sparse_flash_attention-uncovered": flash_uncovered,
    "npu_sparse_flash_attention_grad-batched": flash_gradient(flash_batched),
    "npu_sparse_flash_attention_grad-packed": flash_gradient(flash_packed),
    "npu_sparse_flash_attention_grad-keys": flash_gradient_of_keys_alone,
    "npu_kv_quant_sparse_flash_attention-paged": quantized(BRAIN, "PA_BSND"),
    "npu_kv_quant_sparse_flash_attention-half": quantized(HALF, "BSND"),
    "npu_block_sparse_attention-batched": blocks_batched,
    "npu_block_sparse_attention-packed": blocks_packed,
    "npu_block_sparse_attention_backward-batched": blocks_gradient(blocks_batched),
    "npu_block_sparse_attention_backward-packed": blocks_gradient(blocks_packed),
    "npu_fused_floyd_attention": floyd(masked=False),
    "npu_fused_floyd_attention-masked": floyd(masked=True),
    "npu_fused_floyd_attention_backward": floyd_gradient,
    "npu_ring_attention_update": ring("SBH", "", HALF),
    "npu_ring_attention_update-packed": ring("TND", "", BRAIN),
    "npu_ring_attention_update-tokens": ring("TND", "TND", torch.float32),
}
