"""Calls of the operators on caches of keys and values: layouts of caches, whole numbers, steps of decoding."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Generator, Tensor

from tests.support.cann import draws
from tests.support.cann.draws import brain, half
from tests.support.cann.example_call import Call

whole = partial(draws.whole, low=-100, high=100)


def positive(g: Generator, *shape: int) -> Tensor:
    return torch.rand(shape, generator=g) + 0.5


def slots(g: Generator, count: int, *shape: int) -> Tensor:
    """Places of their own, the first of them skipped."""
    chosen = torch.randperm(count, generator=g)[: torch.Size(shape).numel()]
    chosen[0] = -1
    return chosen.view(shape)


def scatter(g: Generator, chunks: bool) -> tuple[Tensor, ...]:
    caches = [(3, 2, 4, 16), (3, 4, 4, 16)] if chunks else [(3, 4, 2, 16), (3, 4, 2, 32)]
    key, value = half(g, 5, 2, 16), half(g, 5, 2, 32)
    return key, value, *(half(g, *shape) for shape in caches), slots(g, 12, 5).int()


def by_head(g: Generator, *, offsets: bool) -> dict[str, Any]:
    found: dict[str, Any] = {
        "compress_lens": torch.tensor([[2, 3], [1, 2]] if offsets else [2, 3, 1, 2], dtype=torch.int32),
        "seq_lens": torch.tensor([6, 4], dtype=torch.int32),
    }
    return found | ({"compress_seq_offsets": torch.tensor([1, 0, 2, 1], dtype=torch.int32)} if offsets else {})


FIRST_SLOTS = torch.tensor([[0, 6], [12, 18]], dtype=torch.int32)


def gather(g: Generator, *, ends: bool = False, offset: bool = False) -> Call:
    lengths = torch.tensor([0, 5, 12] if ends else [5, 7], dtype=torch.int32)
    options: dict[str, Any] = {"seq_offset": torch.tensor([4, 0], dtype=torch.int32)} if offset else {}
    tables = torch.tensor([[4, 0], [2, 3]], dtype=torch.int32)
    args = (half(g, 5, 4, 2, 8), half(g, 5, 4, 2, 6), tables, lengths, half(g, 12, 2, 8), half(g, 12, 2, 6))
    return Call(args, options | ({"is_seq_lens_cumsum": True} if ends else {}))


def latent(g: Generator, mode: str, *, quantized: bool = False, **kwargs: Any) -> Call:
    """Two sequences of five tokens, 64 dimensions of values and 32 of keys, in pages of four."""
    batch, length, size, pages = 2, 5, 4, 6
    index = {
        "Norm": lambda: torch.stack([slots(g, 9, length) for _ in range(batch)]),
        "PA_BLK_BNSD": lambda: torch.tensor([8, 0, -1, 4]),
        "PA_BLK_NZ": lambda: torch.tensor([8, 0, -1, 4]),
    }.get(mode, lambda: slots(g, size * pages, batch * length))()
    lead = (batch, 1, 9) if mode == "Norm" else (pages, size, 1)
    make = whole if quantized else half
    caches = make(g, *lead, 32), make(g, *lead, 64)
    options: dict[str, Any] = {"cache_mode": mode, **kwargs}
    if quantized:
        options |= {"k_rope_scale": positive(g, 32) * 20, "c_kv_scale": positive(g, 64) * 20}
    angles = half(g, batch, 1, length, 32), half(g, batch, 1, length, 32)
    return Call((half(g, batch, 1, length, 96), half(g, 64), *angles, index, *caches), options)


def separate(g: Generator, **kwargs: Any) -> Call:
    """Keys and values of two heads that come by themselves."""
    index, angles = slots(g, 24, 10), (half(g, 2, 1, 5, 32), half(g, 2, 1, 5, 32))
    caches = half(g, 6, 4, 2, 48), half(g, 6, 4, 2, 32)
    options = {"cache_mode": "PA_BNSD", "v": half(g, 2, 2, 5, 32), "is_output_kv": True, **kwargs}
    return Call((half(g, 2, 2, 5, 48), half(g, 48), *angles, index, *caches), options)


def fused(g: Generator, *, quantized: bool = False, **kwargs: Any) -> Call:
    """Six tokens of four, two and two heads of 32."""
    chunk, make = (32, whole) if quantized else (16, half)
    caches = [make(g, 3, 2 * 32 // chunk, 4, chunk) for _ in range(2)]
    options: dict[str, Any] = dict(kwargs)
    if quantized:
        names = ("k_scale", "v_scale", "k_offset", "v_offset")
        options |= {name: positive(g, 2, 32) / (1 if name.endswith("offset") else 20) for name in names}
    args = (
        half(g, 6, 8 * 32), half(g, 32), half(g, 32), half(g, 6, 32), half(g, 6, 32), slots(g, 12, 6),
        half(g, 6, 4 * 32), *caches, [3, 2, 8, 32], [4, 2, 2],
    )  # fmt: skip
    return Call(args, options)


def turned(g: Generator, *, page: bool = False, flat: bool = False, x: Tensor | None = None, **kwargs: Any) -> Call:
    """Queries of two heads, keys and values of one, of 64 dimensions, in caches of int8."""
    lead = (3,) if flat else (3, 2)
    count = lead[0] if flat or not page else 6
    index = slots(g, 32, count) if page else torch.tensor([3, 0, 5])
    angles = [half(g, *lead, 64) if flat else half(g, *lead, 1, 64) for _ in range(2)]
    caches = [whole(g, 4, 8, 1, 64) for _ in range(2)]
    scales = [positive(g, 1, 64) / 30 for _ in range(2)]
    x = half(g, *lead, 256) if x is None else x
    options = {"cache_mode": "page" if page else "contiguous", **kwargs}
    return Call((x, *angles, *caches, index.int(), *scales, [128, 64, 64]), options)


def step(g: Generator) -> Call:
    def numbers(high: int, *shape: int) -> Tensor:
        return torch.randint(0, high, shape, generator=g)

    return Call((numbers(50, 6), numbers(50, 4, 1), numbers(9, 6), numbers(9, 6), numbers(9, 6), numbers(30, 6, 3),
                 6, 4, 4))  # fmt: skip


def speculative(g: Generator) -> Call:
    def numbers(high: int, *shape: int) -> Tensor:
        return torch.randint(0, high, shape, generator=g)

    sampled = numbers(50, 4, 3)
    sampled[1, 1:], sampled[2, 2] = -1, -1
    return Call(
        (numbers(50, 12), sampled, numbers(9, 12), numbers(9, 12), numbers(9, 12), numbers(30, 4, 4), 4, 4, 4),
        {"spec_token": numbers(50, 4, 2), "accepted_num": torch.tensor([2, 0, 1, 2])},
    )


def prolog(g: Generator, version: int, kind: str = "floats", *, packed: bool = False, **kwargs: Any) -> Call:
    """Six tokens of 64 dimensions, two heads of 16 + 32, latent keys of 64 dimensions, in pages of four."""
    he, hcq, heads, d, dr, hckv = 64, 32, 2, 16, 32, 64
    lead = (6,) if packed else (3, 2)
    x = whole(g, *lead, he) if kind.startswith("full") else brain(g, *lead, he)
    weights = {
        "weight_dq": (he, hcq), "weight_uq_qr": (hcq, heads * (d + dr)), "weight_dkv_kr": (he, hckv + dr),
    }  # fmt: skip
    in_whole = {"floats": (), "part": ("weight_uq_qr",), "part cache": ("weight_uq_qr",)}.get(kind, tuple(weights))
    made = {name: (whole if name in in_whole else brain)(g, *shape) for name, shape in weights.items()}
    options: dict[str, Any] = {
        f"dequant_scale_w_{name[7:]}": positive(g, 1, weights[name][1]) / 500 for name in in_whole
    }
    if kind.startswith("full"):
        options["dequant_scale_x"] = positive(g, 6, 1) / 50
    if kind != "floats":
        options["smooth_scales_cq"] = positive(g, 1, hcq)
    kv_whole, kr_whole = kind in ("part cache", "full cache"), kind == "part cache"
    if kind == "part cache":
        options |= {"quant_scale_ckv": positive(g, 1, hckv) * 20, "quant_scale_ckr": positive(g, 1, dr)}
    if kind == "full cache":
        options["quant_scale_ckv"] = torch.tensor([25.0])
    caches = (whole if kv_whole else brain)(g, 4, 4, 1, hckv), (whole if kr_whole else brain)(g, 4, 4, 1, dr)
    index = torch.randperm(16, generator=g)[:6].view(lead)
    options |= {"cache_index": index, **kwargs} if version == 3 else kwargs
    first = (
        x, made["weight_dq"], made["weight_uq_qr"], brain(g, heads, d, hckv), made["weight_dkv_kr"], brain(g, hcq),
        brain(g, hckv), brain(g, *lead, dr), brain(g, *lead, dr),
    )  # fmt: skip
    return Call((*first, *caches) if version == 3 else (*first, index, *caches), options)


NORMED = {"query_norm_flag": True}


def atb_caches(g: Generator, *, chunks: bool) -> tuple[Tensor, Tensor]:
    """Five blocks of four tokens, two heads of 16 and of 32."""
    shapes = [(5, 2, 4, 16), (5, 4, 4, 16)] if chunks else [(5, 4, 2, 16), (5, 4, 2, 32)]
    return half(g, *shapes[0]), half(g, *shapes[1])


def reshaped(g: Generator, *, chunks: bool) -> Call:
    return Call((half(g, 7, 2, 16), half(g, 7, 2, 32), *atb_caches(g, chunks=chunks), slots(g, 20, 7).int()))


def paged(g: Generator, *, chunks: bool) -> Call:
    tables = torch.tensor([[4, 0], [2, 3], [1, 0]], dtype=torch.int32)
    lengths = torch.tensor([5, 8, 1], dtype=torch.int32)
    return Call((half(g, 3, 4, 16), *atb_caches(g, chunks=chunks), 2, 4, 0.25, tables, lengths, half(g, 3, 4, 32)))


def rotary(g: Generator, *, is_neox: bool) -> Call:
    return Call((torch.tensor([3, 0, 6]), half(g, 3, 32), half(g, 3, 16), 8, half(g, 9, 8), is_neox))


EXAMPLES: dict[str, Callable[[Generator], Call]] = {
    "npu_scatter_pa_kv_cache": lambda g: Call(scatter(g, chunks=True)),
    "npu_scatter_pa_kv_cache-Norm": lambda g: Call(scatter(g, chunks=False), {"cache_mode": "Norm"}),
    "npu_scatter_pa_kv_cache-by head": lambda g: Call(
        (half(g, 2, 6, 2, 16), half(g, 2, 6, 2, 16), half(g, 6, 4, 1, 16), half(g, 6, 4, 1, 16), FIRST_SLOTS),
        {**by_head(g, offsets=True), "cache_mode": "Norm"},
    ),
    "npu_scatter_pa_kv_cache_functional": lambda g: Call(scatter(g, chunks=True)),
    "npu_scatter_pa_cache": lambda g: Call(
        (half(g, 5, 2, 16), slots(g, 12, 5).int()), {"key_cache": half(g, 3, 4, 2, 16)}
    ),
    "npu_scatter_pa_cache-mean": lambda g: Call(
        (half(g, 2, 6, 2, 16), FIRST_SLOTS), {**by_head(g, offsets=True), "key_cache": half(g, 6, 4, 1, 16)}
    ),
    "npu_scatter_pa_cache-last": lambda g: Call(
        (half(g, 2, 6, 2, 16), FIRST_SLOTS), {**by_head(g, offsets=False), "key_cache": half(g, 6, 4, 1, 16)}
    ),
    "npu_gather_pa_kv_cache": lambda g: gather(g),
    "npu_gather_pa_kv_cache-offsets": lambda g: gather(g, ends=True, offset=True),
    "npu_gather_pa_kv_cache_functional": lambda g: gather(g, ends=True),
    **{
        f"npu_kv_rmsnorm_rope_cache-{mode}": lambda g, mode=mode: latent(g, mode, is_output_kv=mode != "Norm")
        for mode in ("Norm", "PA_BNSD", "PA_NZ", "PA_BLK_BNSD", "PA_BLK_NZ")
    },
    "npu_kv_rmsnorm_rope_cache-int8": lambda g: latent(
        g, "PA_BNSD", quantized=True, k_rope_offset=positive(g, 32), c_kv_offset=positive(g, 64)
    ),
    "npu_kv_rmsnorm_rope_cache-int8 in chunks": lambda g: latent(g, "PA_NZ", quantized=True),
    "npu_kv_rmsnorm_rope_cache_v2": lambda g: latent(g, "PA_BNSD", quantized=True, is_output_kv=True),
    "npu_kv_rmsnorm_rope_cache_v2-separate": lambda g: separate(g),
    "npu_kv_rmsnorm_rope_cache_v2_functional": lambda g: latent(g, "PA_NZ", is_output_kv=True),
    "npu_qkv_rms_norm_rope_cache": lambda g: fused(g, is_output_qkv=True),
    "npu_qkv_rms_norm_rope_cache-int8": lambda g: fused(g, quantized=True),
    "npu_qkv_rms_norm_rope_cache_functional": lambda g: fused(g, quantized=True, is_output_qkv=True),
    "npu_rope_quant_kvcache": lambda g: turned(g, kv_output=True),
    "npu_rope_quant_kvcache-pages": lambda g: turned(g, page=True, offset_k=positive(g, 1, 64),
                                                     offset_v=positive(g, 1, 64)),
    "npu_rope_quant_kvcache-flat": lambda g: turned(g, flat=True, kv_output=True),
    "npu_dequant_rope_quant_kvcache": lambda g: turned(
        g, x=whole(g, 3, 2, 256).int() * 50, weight_scale=positive(g, 256) / 3000, activation_scale=positive(g, 6),
        bias=half(g, 256), kv_output=True,
    ),
    "npu_dequant_rope_quant_kvcache-whole bias": lambda g: turned(
        g, x=whole(g, 3, 256).int() * 50, flat=True, page=True, weight_scale=positive(g, 256) / 3000,
        bias=whole(g, 256).int(),
    ),
    "npu_advance_step_flashattn": step,
    "npu_advance_step_flashattn-speculative": speculative,
    "npu_mla_prolog": lambda g: prolog(g, 1),
    "npu_mla_prolog-int8 cache": lambda g: prolog(g, 1, "part cache", packed=True),
    "npu_mla_prolog_v2": lambda g: prolog(g, 2, "part", cache_mode="PA_NZ"),
    "npu_mla_prolog_v2-int8": lambda g: prolog(g, 2, "full cache"),
    "npu_mla_prolog_v3": lambda g: prolog(g, 3, qc_qr_scale=2.0, kc_scale=3.0, **NORMED),
    "npu_mla_prolog_v3-int8": lambda g: prolog(g, 3, "full", packed=True, weight_quant_mode=2, **NORMED),
    "npu_mla_prolog_v3-int8 cache": lambda g: prolog(
        g, 3, "full cache", weight_quant_mode=2, kv_cache_quant_mode=1, query_quant_mode=1, cache_mode="PA_NZ"
    ),
    "npu_mla_prolog_v3_functional": lambda g: prolog(g, 3, "part", weight_quant_mode=1, **NORMED),
    "_npu_reshape_and_cache": lambda g: reshaped(g, chunks=False),
    "_npu_reshape_and_cache-chunks": lambda g: reshaped(g, chunks=True),
    "_npu_paged_attention": lambda g: paged(g, chunks=False),
    "_npu_paged_attention-chunks": lambda g: paged(g, chunks=True),
    "_npu_rotary_embedding": lambda g: rotary(g, is_neox=True),
    "_npu_rotary_embedding-pairs": lambda g: rotary(g, is_neox=False),
}  # fmt: skip
