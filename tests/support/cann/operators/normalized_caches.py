"""Keys and values that are normalized, turned and written to caches, token by token."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from tests.support.cann.operators.paged_caches import chunk_of, int8, put, put_in_chunks, wide


def normalized(x: Tensor, gamma: Tensor, epsilon: float) -> Tensor:
    x = wide(x)
    return x / ((x * x).sum(-1, keepdim=True) / x.shape[-1] + epsilon) ** 0.5 * wide(gamma)


def turned(x: Tensor, cos: Tensor, sin: Tensor, *, pairs: bool = False) -> Tensor:
    """Turn x (..., D), whose pairs are its halves, or (``pairs``) neighbours that become its halves."""
    if pairs:
        x = torch.cat((x[..., 0::2], x[..., 1::2]), -1)
    n = x.shape[-1] // 2
    cos, sin = wide(cos), wide(sin)
    first = x[..., :n] * cos[..., :n] - x[..., n:] * sin[..., :n]
    return torch.cat((first, x[..., n:] * cos[..., n:] + x[..., :n] * sin[..., n:]), -1)


def npu_kv_rmsnorm_rope_cache(
    kv: Tensor,
    gamma: Tensor,
    cos: Tensor,
    sin: Tensor,
    index: Tensor,
    k_cache: Tensor,
    ckv_cache: Tensor,
    *,
    k_rope_scale: Tensor | None = None,
    c_kv_scale: Tensor | None = None,
    k_rope_offset: Tensor | None = None,
    c_kv_offset: Tensor | None = None,
    v: Tensor | None = None,
    epsilon: float = 1e-5,
    cache_mode: str = "Norm",
    is_output_kv: bool = False,
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
    if v is None:
        values, keys = normalized(kv[..., : len(gamma)], gamma, epsilon), wide(kv[..., len(gamma) :])
        keys = turned(keys, cos, sin, pairs=True)
    else:
        keys, values, n = normalized(kv, gamma, epsilon), wide(v), cos.shape[-1]
        keys = torch.cat((turned(keys[..., :n], cos, sin, pairs=True), keys[..., n:]), -1)
    for cache, tokens, scale, offset in (
        (k_cache, keys, k_rope_scale, k_rope_offset),
        (ckv_cache, values, c_kv_scale, c_kv_offset),
    ):
        for b in range(kv.shape[0]):
            for s in range(kv.shape[2]):
                token = tokens[b, :, s]
                if scale is not None:
                    token = int8(token * wide(scale) + (0 if offset is None else wide(offset)))
                latent_put(cache, index, b, s, kv.shape[2], token, cache_mode)
    outs = (keys.to(kv.dtype), values.to(kv.dtype)) if is_output_kv else (None, None)
    return k_cache, ckv_cache, *outs


def latent_put(cache: Tensor, index: Tensor, b: int, s: int, length: int, token: Tensor, mode: str) -> None:
    if mode == "Norm":
        if int(index[b, s]) >= 0:
            cache[b, :, int(index[b, s])] = token.to(cache.dtype)
        return
    size = cache.shape[1]
    if "BLK" in mode:
        first = int(index.flatten()[b * math.ceil(length / size) + s // size])
        slot = -1 if first < 0 else first // size * size + s % size
    else:
        slot = int(index.flatten()[b * length + s])
    if mode.endswith("NZ"):
        put_in_chunks(cache, slot, token, size, chunk_of(cache))
    else:
        put(cache, slot, token)


def npu_kv_rmsnorm_rope_cache_v2(*args: Tensor, **kwargs: Any) -> tuple[Tensor | None, Tensor | None]:
    return npu_kv_rmsnorm_rope_cache(*args, **without_dtypes(kwargs))[2:]


def npu_kv_rmsnorm_rope_cache_v2_functional(
    *args: Tensor, **kwargs: Any
) -> tuple[Tensor | None, Tensor | None, Tensor, Tensor]:
    copies = [x.clone() if at in (5, 6) else x for at, x in enumerate(args)]
    found = npu_kv_rmsnorm_rope_cache(*copies, **without_dtypes(kwargs))
    return found[2], found[3], found[0], found[1]


def without_dtypes(kwargs: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in kwargs.items() if not name.endswith("_dtype")}


def npu_qkv_rms_norm_rope_cache(
    qkv: Tensor,
    q_gamma: Tensor,
    k_gamma: Tensor,
    cos: Tensor,
    sin: Tensor,
    index: Tensor,
    q_out: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    qkv_size: Sequence[int],
    head_nums: Sequence[int],
    *,
    k_scale: Tensor | None = None,
    v_scale: Tensor | None = None,
    k_offset: Tensor | None = None,
    v_offset: Tensor | None = None,
    epsilon: float = 1e-6,
    cache_mode: str = "PA_NZ",
    is_output_qkv: bool = False,
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    width, (nq, nk, _) = qkv_size[3], head_nums
    outs: list[list[Tensor]] = [[], [], []]
    for row, slot in enumerate(index.tolist()):
        heads = wide(qkv[row]).view(-1, width)
        q = turned(normalized(heads[:nq], q_gamma, epsilon), cos[row], sin[row])
        k = turned(normalized(heads[nq : nq + nk], k_gamma, epsilon), cos[row], sin[row])
        v = heads[nq + nk :]
        q_out[row] = q.flatten().to(q_out.dtype)
        for cache, token, scale, offset in ((k_cache, k, k_scale, k_offset), (v_cache, v, v_scale, v_offset)):
            if scale is not None:
                token = int8(token / wide(scale) + (0 if offset is None else wide(offset)))
            put_in_chunks(cache, slot, token, cache.shape[2], cache.shape[3])
        for found, x in zip(outs, (q, k, v), strict=True):
            found.append(x.flatten())
    if not is_output_qkv:
        return None, None, None
    q, k, v = (torch.stack(rows).to(qkv.dtype) for rows in outs)
    return q, k, v


def npu_qkv_rms_norm_rope_cache_functional(*args: Any, **kwargs: Any) -> tuple[Any, ...]:
    copies = [x.clone() if at in (6, 7, 8) else x for at, x in enumerate(args)]
    return *npu_qkv_rms_norm_rope_cache(*copies, **kwargs), *copies[6:9]


def npu_rope_quant_kvcache(
    x: Tensor,
    cos: Tensor,
    sin: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    indices: Tensor,
    scale_k: Tensor,
    scale_v: Tensor,
    size_splits: Sequence[int],
    *,
    offset_k: Tensor | None = None,
    offset_v: Tensor | None = None,
    quant_mode: int = 0,
    input_layout: str = "BSND",
    kv_output: bool = False,
    cache_mode: str = "contiguous",
) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor, Tensor]:
    width, dtype = cos.shape[-1], cos.dtype
    tokens = wide(x).reshape(-1, x.shape[-1])
    length = x.shape[1] if x.dim() == 3 else 1
    cos, sin = cos.reshape(-1, 1, width), sin.reshape(-1, 1, width)
    outs: list[list[Tensor]] = [[], [], []]
    for row, token in enumerate(tokens):
        q, k, v = (part.view(-1, width) for part in token.split(list(size_splits)))
        q, k = turned(q, cos[row], sin[row]), turned(k, cos[row], sin[row])
        for cache, part, scale, offset in ((k_cache, k, scale_k, offset_k), (v_cache, v, scale_v, offset_v)):
            whole = int8(part / wide(scale) + (0 if offset is None else wide(offset)))
            if cache_mode == "page":
                put(cache, int(indices.flatten()[row]), whole)
            else:
                cache[row // length, int(indices.flatten()[row // length]) + row % length] = whole
        for found, part in zip(outs, (q, k, v), strict=True):
            found.append(part)
    q, k, v = (torch.stack(rows).to(dtype).view(*x.shape[:-1], -1, width) for rows in outs)
    return q, *((k, v) if kv_output else (None, None)), k_cache, v_cache


def npu_dequant_rope_quant_kvcache(
    x: Tensor,
    *args: Any,
    weight_scale: Tensor | None = None,
    activation_scale: Tensor | None = None,
    bias: Tensor | None = None,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor, Tensor]:
    numbers = wide(x)
    if weight_scale is not None and not x.is_floating_point():
        if bias is not None and bias.dtype is torch.int32:
            numbers = numbers + bias
        numbers = numbers * wide(weight_scale)
        if activation_scale is not None:
            numbers = numbers * wide(activation_scale).view(*x.shape[:-1], 1)
        if bias is not None and bias.dtype is not torch.int32:
            numbers = numbers + wide(bias)
    return npu_rope_quant_kvcache(numbers, *args, **kwargs)
