"""The prologs of multi-head latent attention, token by token."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tests.support.cann.operators.normalized_caches import normalized, turned
from tests.support.cann.operators.paged_caches import chunk_of, int8, put, put_in_chunks, wide


def by_row(x: Tensor) -> tuple[Tensor, Tensor]:
    """Round rows to int8, and return the scale of each, (..., 1)."""
    scale = x.abs().max(-1, keepdim=True).values / 127
    return int8(x / scale), scale


def prolog(
    token_x: Tensor,
    weight_dq: Tensor,
    weight_uq_qr: Tensor,
    weight_uk: Tensor,
    weight_dkv_kr: Tensor,
    gamma_cq: Tensor,
    gamma_ckv: Tensor,
    rope_sin: Tensor,
    rope_cos: Tensor,
    cache_index: Tensor,
    kv_cache: Tensor,
    kr_cache: Tensor,
    given: dict[str, Any],
    *,
    round_queries: bool,
) -> dict[str, Tensor]:
    """Write the caches token by token, and return what the versions return, by name."""
    one = torch.ones(1, dtype=torch.float64)

    def scale(name: str) -> Tensor:
        found = given.get(name)
        return one if found is None else wide(found)

    heads, width, _ = weight_uk.shape
    rows: dict[str, list[Tensor]] = {name: [] for name in ("query", "rope", "scale", "norm", "norm_scale")}
    sines, cosines = rope_sin.flatten(0, -2), rope_cos.flatten(0, -2)
    scales_x = scale("dequant_scale_x").view(-1)
    for row, x in enumerate(wide(token_x.flatten(0, -2))):
        of_x = scales_x[row if len(scales_x) > 1 else 0]
        c = normalized(
            x @ wide(weight_dq) * of_x * scale("dequant_scale_w_dq").view(-1), gamma_cq,
            given.get("rmsnorm_epsilon_cq", 1e-5),
        ) * given.get("qc_qr_scale", 1.0)  # fmt: skip
        c_scale = one
        if not weight_uq_qr.is_floating_point():
            c, c_scale = by_row(c * scale("smooth_scales_cq").view(-1))
        up = wide(c) @ wide(weight_uq_qr) * c_scale * scale("dequant_scale_w_uq_qr").view(-1)
        by_head = up.view(heads, -1)
        query = torch.stack([by_head[n, :width] @ wide(weight_uk[n]) for n in range(heads)])
        rope = turned(by_head[:, width:], cosines[row], sines[row], pairs=True)
        query_scale = one.expand(heads, 1)
        if round_queries:
            query, query_scale = by_row(query)
            rope = rope * scale("quant_scale_ckv").view(1) / query_scale
        found = (query, rope, query_scale, c, c_scale.view(1))
        for name, value in zip(rows, found, strict=True):
            rows[name].append(value)
        both = x @ wide(weight_dkv_kr) * of_x * scale("dequant_scale_w_dkv_kr").view(-1)
        latent = normalized(both[: len(gamma_ckv)], gamma_ckv, given.get("rmsnorm_epsilon_ckv", 1e-5))
        parts = (
            (kv_cache, latent * given.get("kc_scale", 1.0), "quant_scale_ckv"),
            (kr_cache, turned(both[len(gamma_ckv) :], cosines[row], sines[row], pairs=True), "quant_scale_ckr"),
        )
        for cache, part, name in parts:
            token = part if given.get(name) is None else int8(part * scale(name).view(-1))
            if given.get("cache_mode", "PA_BSND") == "PA_NZ":
                put_in_chunks(cache, int(cache_index.flatten()[row]), token, cache.shape[1], chunk_of(cache))
            else:
                put(cache, int(cache_index.flatten()[row]), token.unsqueeze(0))
    return {name: torch.stack(found) for name, found in rows.items()}


def npu_mla_prolog(*args: Tensor, **kwargs: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return npu_mla_prolog_v2(*args, **kwargs)[:4]


def npu_mla_prolog_v2(*args: Tensor, **kwargs: Any) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor | None]:
    x, sine, rounds = args[0], args[7], not args[0].is_floating_point() and kwargs.get("quant_scale_ckv") is not None
    found = prolog(*args, kwargs, round_queries=rounds)  # type: ignore[misc]
    query = found["query"] if rounds else found["query"].to(sine.dtype)
    return (
        query.unflatten(0, x.shape[:-1]),
        found["rope"].to(sine.dtype).unflatten(0, x.shape[:-1]),
        args[10],
        args[11],
        found["scale"].float() if rounds else None,
    )


def npu_mla_prolog_v3(
    *args: Tensor, **kwargs: Any
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None, Tensor | None]:
    x, sine = args[0], args[7]
    rounds = kwargs.get("weight_quant_mode") == 2 and kwargs.get("kv_cache_quant_mode") == 1
    found = prolog(*args[:9], kwargs.pop("cache_index"), *args[9:], kwargs, round_queries=rounds)  # type: ignore[misc]
    query, rope, norm = (found[name].unflatten(0, x.shape[:-1]) for name in ("query", "rope", "norm"))
    asked = kwargs.get("query_norm_flag", False)
    whole = not args[2].is_floating_point()
    return (
        query if rounds else query.to(sine.dtype),
        rope.to(sine.dtype),
        found["scale"].float() if rounds else None,
        (norm if whole else norm.to(sine.dtype)) if asked else None,
        found["norm_scale"].float() if asked and whole else None,
    )


def npu_mla_prolog_v3_functional(*args: Tensor, **kwargs: Any) -> tuple[Any, ...]:
    copies = [x.clone() if at in (9, 10) else x for at, x in enumerate(args)]
    return *npu_mla_prolog_v3(*copies, **kwargs), *copies[9:]
