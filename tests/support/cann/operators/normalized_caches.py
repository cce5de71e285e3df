"""Keys and values that are normalized, turned and written to caches, token by token."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from tests.support.cann.operators.by_schema import Arguments, by_schema
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


@by_schema
def npu_kv_rmsnorm_rope_cache(args: Arguments) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
    if args.v is None:
        values, keys = (
            normalized(args.kv[..., : len(args.gamma)], args.gamma, args.epsilon),
            wide(args.kv[..., len(args.gamma) :]),
        )
        keys = turned(keys, args.cos, args.sin, pairs=True)
    else:
        keys, values, n = normalized(args.kv, args.gamma, args.epsilon), wide(args.v), args.cos.shape[-1]
        keys = torch.cat((turned(keys[..., :n], args.cos, args.sin, pairs=True), keys[..., n:]), -1)
    for cache, tokens, scale, offset in (
        (args.k_cache, keys, args.k_rope_scale, args.k_rope_offset),
        (args.ckv_cache, values, args.c_kv_scale, args.c_kv_offset),
    ):
        for b in range(args.kv.shape[0]):
            for s in range(args.kv.shape[2]):
                token = tokens[b, :, s]
                if scale is not None:
                    token = int8(token * wide(scale) + (0 if offset is None else wide(offset)))
                latent_put(cache, args.index, b, s, args.kv.shape[2], token, args.cache_mode)
    outs = (keys.to(args.kv.dtype), values.to(args.kv.dtype)) if args.is_output_kv else (None, None)
    return args.k_cache, args.ckv_cache, *outs


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


@by_schema
def npu_qkv_rms_norm_rope_cache(args: Arguments) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    width, (nq, nk, _) = args.qkv_size[3], args.head_nums
    outs: list[list[Tensor]] = [[], [], []]
    for row, slot in enumerate(args.index.tolist()):
        heads = wide(args.qkv[row]).view(-1, width)
        q = turned(normalized(heads[:nq], args.q_gamma, args.epsilon), args.cos[row], args.sin[row])
        k = turned(normalized(heads[nq : nq + nk], args.k_gamma, args.epsilon), args.cos[row], args.sin[row])
        v = heads[nq + nk :]
        args.q_out[row] = q.flatten().to(args.q_out.dtype)
        for cache, token, scale, offset in (
            (args.k_cache, k, args.k_scale, args.k_offset),
            (args.v_cache, v, args.v_scale, args.v_offset),
        ):
            if scale is not None:
                token = int8(token / wide(scale) + (0 if offset is None else wide(offset)))
            put_in_chunks(cache, slot, token, cache.shape[2], cache.shape[3])
        for found, x in zip(outs, (q, k, v), strict=True):
            found.append(x.flatten())
    if not args.is_output_qkv:
        return None, None, None
    q, k, v = (torch.stack(rows).to(args.qkv.dtype) for rows in outs)
    return q, k, v


def npu_qkv_rms_norm_rope_cache_functional(*args: Any, **kwargs: Any) -> tuple[Any, ...]:
    copies = [x.clone() if at in (6, 7, 8) else x for at, x in enumerate(args)]
    return *npu_qkv_rms_norm_rope_cache(*copies, **kwargs), *copies[6:9]


@by_schema
def npu_rope_quant_kvcache(args: Arguments) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor, Tensor]:
    width, dtype = args.cos.shape[-1], args.cos.dtype
    tokens = wide(args.x).reshape(-1, args.x.shape[-1])
    length = args.x.shape[1] if args.x.dim() == 3 else 1
    cos, sin = args.cos.reshape(-1, 1, width), args.sin.reshape(-1, 1, width)
    outs: list[list[Tensor]] = [[], [], []]
    for row, token in enumerate(tokens):
        q, k, v = (part.view(-1, width) for part in token.split(list(args.size_splits)))
        q, k = turned(q, cos[row], sin[row]), turned(k, cos[row], sin[row])
        for cache, part, scale, offset in (
            (args.k_cache, k, args.scale_k, args.offset_k),
            (args.v_cache, v, args.scale_v, args.offset_v),
        ):
            whole = int8(part / wide(scale) + (0 if offset is None else wide(offset)))
            if args.cache_mode == "page":
                put(cache, int(args.indices.flatten()[row]), whole)
            else:
                cache[row // length, int(args.indices.flatten()[row // length]) + row % length] = whole
        for found, part in zip(outs, (q, k, v), strict=True):
            found.append(part)
    q, k, v = (torch.stack(rows).to(dtype).view(*args.x.shape[:-1], -1, width) for rows in outs)
    return q, *((k, v) if args.kv_output else (None, None)), args.k_cache, args.v_cache


@by_schema
def npu_dequant_rope_quant_kvcache(args: Arguments) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor, Tensor]:
    others = dict(vars(args))
    weight_scale, activation_scale, bias = (others.pop(name) for name in ("weight_scale", "activation_scale", "bias"))
    numbers = wide(others.pop("x"))
    if weight_scale is not None and not args.x.is_floating_point():
        if bias is not None and bias.dtype is torch.int32:
            numbers = numbers + bias
        numbers = numbers * wide(weight_scale)
        if activation_scale is not None:
            numbers = numbers * wide(activation_scale).view(*args.x.shape[:-1], 1)
        if bias is not None and bias.dtype is not torch.int32:
            numbers = numbers + wide(bias)
    return npu_rope_quant_kvcache(numbers, **others)
