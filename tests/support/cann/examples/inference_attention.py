"""Calls of the operators of inference attention: layouts, masks, caches, prefixes, rope parts, whole numbers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Generator, Tensor

from tests.support.cann import draws
from tests.support.cann.draws import brain, half
from tests.support.cann.example_call import Call

TRIANGLE = torch.ones(2048, 2048, dtype=torch.bool).triu(1)
HEADS, KV, D = 4, 2, 16

whole = partial(draws.whole, low=-100, high=100)


def positive(g: Generator, *shape: int) -> Tensor:
    return torch.rand(shape, generator=g) / 50 + 0.01


def mask(g: Generator, *shape: int) -> Tensor:
    hidden = torch.rand(shape, generator=g) > 0.7
    hidden[..., 0] = False
    return hidden


def blocks(g: Generator, sequences: int, each: int, count: int) -> Tensor:
    return torch.randperm(count, generator=g)[: sequences * each].view(sequences, each).int()


def shapes(layout: str, batch: int, length: int, heads: int, width: int = D) -> tuple[int, ...]:
    return {
        "BSH": (batch, length, heads * width),
        "BSND": (batch, length, heads, width),
        "BNSD": (batch, heads, length, width),
        "NSD": (heads, length, width),
        "TND": (batch * length, heads, width),
        "NTD": (heads, batch * length, width),
    }[layout.partition("_")[0]]


def prompt(g: Generator, layout: str = "BSH", **kwargs: Any) -> Call:
    """A prompt of five tokens over seven keys, in two batch entries."""
    batch = 1 if layout == "NSD" else 2
    tensors = [half(g, *shapes(layout, batch, length, heads)) for length, heads in ((5, HEADS), (7, KV), (7, KV))]
    options = {"num_heads": HEADS, "num_key_value_heads": KV, "input_layout": layout}
    if layout.startswith(("TND", "NTD")):
        options |= {"actual_seq_lengths": [4, 10], "actual_seq_lengths_kv": [8, 14]}
    return Call(tuple(tensors), {**options, **kwargs})


def token(g: Generator, layout: str = "BNSD", **kwargs: Any) -> Call:
    """One query over nine keys, in two batch entries."""
    tensors = [half(g, *shapes(layout, 2, length, heads)) for length, heads in ((1, HEADS), (9, KV), (9, KV))]
    return Call(tuple(tensors), {"num_heads": HEADS, "num_key_value_heads": KV, "input_layout": layout, **kwargs})


def paged(g: Generator, form: str, queries: int = 1, **kwargs: Any) -> Call:
    """Queries over caches of six blocks of four tokens, three blocks for each of two sequences."""
    forms = {"H": (6, 4, KV * D), "N": (6, KV, 4, D), "chunks": (6, KV, D // 8, 4, 8)}
    query = half(g, *shapes("BNSD", 2, queries, HEADS))
    caches = [half(g, *forms[form]) for _ in range(2)]
    options = {"num_heads": HEADS, "num_key_value_heads": KV, "input_layout": "BNSD", "block_size": 4}
    return Call((query, *caches), {**options, "block_table": blocks(g, 2, 3, 6), **kwargs})


def latent(g: Generator, layout: str, queries: int, **kwargs: Any) -> Call:
    """Queries of MLA over latent keys in blocks, one head, with rope parts."""
    tokens = shapes(layout, 2, queries, HEADS, 32)
    options: dict[str, Any] = {
        "query_rope": brain(g, *shapes(layout, 2, queries, HEADS, 16)),
        "key_rope": brain(g, 6, 4, 16),
        "block_table": blocks(g, 2, 3, 6),
        "block_size": 4,
        "num_key_value_heads": 1,
        "input_layout": layout,
    }
    cache = brain(g, 6, 4, 32)
    return Call((brain(g, *tokens), cache, cache), {**options, **kwargs})


def dense_int8(g: Generator, **kwargs: Any) -> Call:
    """One query over nine int8 keys of two heads."""
    query = brain(g, 2, HEADS, 1, D)
    keys = [whole(g, 2, KV, 9, D) for _ in range(2)]
    return Call((query, *keys), {"num_heads": HEADS, "num_key_value_heads": KV, "input_layout": "BNSD", **kwargs})


def separate(g: Generator, mode: int, *shape: int) -> dict[str, Any]:
    """Parameters for key and for value, each by itself."""
    names = ("key_antiquant", "value_antiquant")
    return {f"{name}_scale": positive(g, *shape) for name in names} | {f"{name}_mode": mode for name in names}


EXAMPLES: dict[str, Callable[[Generator], Call]] = {
    **{
        f"npu_prompt_flash_attention-{layout}": lambda g, layout=layout: prompt(g, layout, scale_value=0.25)
        for layout in ("BSH", "BSND", "BNSD", "BNSD_BSND", "NSD", "TND")
    },
    **{
        f"npu_prompt_flash_attention-mode {mode}": lambda g, mode=mode: prompt(
            g, scale_value=0.25, sparse_mode=mode, pre_tokens=3, next_tokens=1, actual_seq_lengths_kv=[7, 6],
            atten_mask=mask(g, 5, 7) if mode < 2 else TRIANGLE,
        )
        for mode in range(5)
    },
    "npu_prompt_flash_attention-a mask for each": lambda g: prompt(g, atten_mask=mask(g, 2, 1, 5, 7), sparse_mode=1),
    "npu_prompt_flash_attention-shifted": lambda g: prompt(g, scale_value=0.25, pse_shift=half(g, 1, HEADS, 5, 8)),
    "npu_prompt_flash_attention-short": lambda g: prompt(g, actual_seq_lengths=[3, 5], actual_seq_lengths_kv=[7]),
    "npu_prompt_flash_attention-int8": lambda g: prompt(
        g, scale_value=0.25, quant_scale2=torch.tensor([40.0]), quant_offset2=torch.tensor([3.0])
    ),
    "npu_incre_flash_attention": lambda g: token(g, "BSH", scale_value=0.25),
    "npu_incre_flash_attention-masked": lambda g: token(
        g, scale_value=0.25, actual_seq_lengths=[9, 6], atten_mask=mask(g, 2, 9), pse_shift=half(g, 2, HEADS, 1, 9)
    ),
    "npu_incre_flash_attention-padded": lambda g: token(
        g, actual_seq_lengths=[5, 3], kv_padding_size=torch.tensor([2]), atten_mask=mask(g, 2, 1, 1, 9)
    ),
    "npu_incre_flash_attention-in blocks": lambda g: paged(g, "H", actual_seq_lengths=[11, 5]),
    "npu_incre_flash_attention-int8 keys": lambda g: dense_int8(
        g, antiquant_scale=positive(g, 2, KV, 1, D).bfloat16(), antiquant_offset=brain(g, 2, KV, 1, D)
    ),
    "npu_incre_flash_attention-int8": lambda g: token(g, quant_scale2=positive(g, HEADS, D) * 900),
    **{
        f"npu_fused_infer_attention_score-{layout}": lambda g, layout=layout: prompt(
            g, layout, scale=0.25, softmax_lse_flag=True
        )
        for layout in ("BSH", "BSH_BNSD", "BSND_BNSD", "BSH_NBSD", "BNSD_NBSD", "TND", "NTD", "TND_NTD", "NTD_TND")
    },
    "npu_fused_infer_attention_score-packed causal": lambda g: prompt(
        g, "TND", scale=0.25, sparse_mode=3, atten_mask=TRIANGLE, softmax_lse_flag=True
    ),
    "npu_fused_infer_attention_score-padded": lambda g: prompt(
        g, "BNSD", actual_seq_lengths=[3], actual_seq_lengths_kv=[4, 5], query_padding_size=torch.tensor(1),
        kv_padding_size=torch.tensor(2), atten_mask=mask(g, 1, 5, 7), pre_tokens=1, next_tokens=0,
        softmax_lse_flag=True,
    ),
    "npu_fused_infer_attention_score-a blind row": lambda g: prompt(
        g, atten_mask=mask(g, 5, 7) | (torch.arange(5) == 2).unsqueeze(1), sparse_mode=1, softmax_lse_flag=True
    ),
    "npu_fused_infer_attention_score-prefix": lambda g: prompt(
        g, "BNSD", scale=0.25, key_shared_prefix=half(g, 1, KV, 4, D), value_shared_prefix=half(g, 1, KV, 4, D),
        actual_shared_prefix_len=[3], atten_mask=mask(g, 1, 5, 10), sparse_mode=1,
    ),
    **{
        f"npu_fused_infer_attention_score-blocks of {form}": lambda g, form=form: paged(
            g, form, 3, scale=0.25, actual_seq_lengths_kv=[12, 7], sparse_mode=3, atten_mask=TRIANGLE
        )
        for form in ("H", "N", "chunks")
    },
    "npu_fused_infer_attention_score-rope": lambda g: latent(g, "BSND", 2, num_heads=HEADS, scale=0.1,
        actual_seq_lengths_kv=[12, 7], sparse_mode=3, atten_mask=TRIANGLE),
    "npu_fused_infer_attention_score-int8 keys": lambda g: dense_int8(
        g, scale=0.1, antiquant_scale=positive(g, 2, 2, 9), antiquant_mode=1
    ),
    **{
        f"npu_fused_infer_attention_score-int8 mode {mode}": lambda g, mode=mode, shape=shape: dense_int8(
            g, scale=0.1, **separate(g, mode, *shape)
        )
        for mode, shape in ((0, (1, KV, 1, D)), (1, (1, 2, 9)), (2, (KV,)), (3, (2, KV, 9)))
    },
    **{
        f"npu_fused_infer_attention_score-int8 mode {mode}": lambda g, mode=mode, shape=shape: Call(
            (half(g, 2, HEADS, 1, D), whole(g, 6, KV, 4, D), whole(g, 6, KV, 4, D)),
            {
                "num_heads": HEADS, "num_key_value_heads": KV, "input_layout": "BNSD", "scale": 0.1,
                "block_table": blocks(g, 2, 3, 6), "block_size": 4, "actual_seq_lengths_kv": [12, 7],
                **separate(g, mode, *shape),
            },
        )
        for mode, shape in ((4, (6, 4)), (5, (6, KV, 4)))
    },
    "npu_fused_infer_attention_score_v2": lambda g: Call(
        prompt(g, "BNSD").args,
        {
            "num_query_heads": HEADS, "num_key_value_heads": KV, "input_layout": "BNSD", "softmax_scale": 0.25,
            "sparse_mode": 4, "pre_tokens": 3, "next_tokens": 1, "atten_mask": TRIANGLE, "return_softmax_lse": True,
        },
    ),
    "npu_fused_infer_attention_score_v2-sink": lambda g: Call(
        (brain(g, 10, HEADS, D), brain(g, 14, KV, D), brain(g, 14, KV, D)),
        {
            "num_query_heads": HEADS, "num_key_value_heads": KV, "input_layout": "TND", "softmax_scale": 0.25,
            "actual_seq_qlen": [4, 10], "actual_seq_kvlen": [8, 14], "learnable_sink": brain(g, HEADS),
            "return_softmax_lse": True,
        },
    ),
    "npu_fused_infer_attention_score_v2-rope": lambda g: latent(
        g, "TND_NTD", 2, num_query_heads=HEADS, softmax_scale=0.1, actual_seq_qlen=[1, 4], actual_seq_kvlen=[12, 7],
        sparse_mode=3, atten_mask=TRIANGLE,
    ),
    "npu_fused_infer_attention_score_v2-int8": lambda g: Call(
        dense_int8(g).args,
        {
            "num_query_heads": HEADS, "num_key_value_heads": KV, "input_layout": "BNSD", "softmax_scale": 0.1,
            "dequant_scale_key": positive(g, 1), "dequant_scale_value": positive(g, KV * D),
            "dequant_offset_key": positive(g, 1), "quant_scale_out": torch.tensor([90.0]),
        },
    ),
}  # fmt: skip
