"""Caches of keys and values, and the prolog of latent attention, token by token: what the simulated card computes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def wide(x: Tensor) -> Tensor:
    return x.to(torch.float64)


def int8(x: Tensor) -> Tensor:
    return x.round().clamp(-128, 127).to(torch.int8)


def put(cache: Tensor, slot: int, token: Tensor) -> None:
    """Write a token (N, D) to a slot of a cache (blocks, tokens, N, D)."""
    if slot >= 0:
        cache[slot // cache.shape[1], slot % cache.shape[1]] = token.to(cache.dtype)


def put_in_chunks(cache: Tensor, slot: int, token: Tensor, size: int, chunk: int) -> None:
    """Write a token of W elements to a slot of a cache whose memory is (blocks, W / chunk, size, chunk)."""
    if slot < 0:
        return
    memory, flat = cache.view(-1), token.reshape(-1).to(cache.dtype)
    block, place = divmod(slot, size)
    start = block * len(flat) * size
    for part in range(len(flat) // chunk):
        first = start + (part * size + place) * chunk
        memory[first : first + chunk] = flat[part * chunk : (part + 1) * chunk]


def chunk_of(cache: Tensor) -> int:
    return 32 // cache.element_size()


def npu_scatter_pa_kv_cache(
    key: Tensor,
    value: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    slot_mapping: Tensor,
    *,
    compress_lens: Tensor | None = None,
    compress_seq_offsets: Tensor | None = None,
    seq_lens: Tensor | None = None,
    cache_mode: str | None = "PA_NZ",
) -> None:
    for tokens, cache in ((key, key_cache), (value, value_cache)):
        if tokens.dim() == 3 and cache_mode == "PA_NZ":
            for slot, token in zip(slot_mapping.tolist(), tokens, strict=True):
                put_in_chunks(cache, slot, token, cache.shape[2], cache.shape[3])
        else:
            scattered(tokens, cache, slot_mapping, compress_lens, compress_seq_offsets, seq_lens)


def scattered(
    tokens: Tensor,
    cache: Tensor,
    slots: Tensor,
    compressed: Tensor | None,
    offsets: Tensor | None,
    lengths: Tensor | None,
) -> None:
    if compressed is None or lengths is None:
        for slot, token in zip(slots.tolist(), tokens, strict=True):
            put(cache, slot, token)
        return
    for b in range(tokens.shape[0]):
        for n in range(tokens.shape[2]):
            at = b * tokens.shape[2] + n
            count, length, slot = int(compressed.flatten()[at]), int(lengths[b]), int(slots[b, n])
            start = length - count if offsets is None else int(offsets[at])
            sequence = [wide(tokens[b, s, n]) for s in range(length)]
            if offsets is None:
                kept = sequence[start:]
            else:
                mean = sum(sequence[start : start + count], torch.zeros_like(sequence[0])) / count
                kept = [*sequence[:start], mean, *sequence[start + count :]]
            for token in kept:
                put(cache, slot, token.unsqueeze(0))
                slot += 1


def npu_scatter_pa_kv_cache_functional(
    key: Tensor, value: Tensor, key_cache: Tensor, value_cache: Tensor, slot_mapping: Tensor, **kwargs: Any
) -> tuple[Tensor, Tensor]:
    caches = key_cache.clone(), value_cache.clone()
    npu_scatter_pa_kv_cache(key, value, *caches, slot_mapping, **kwargs)
    return caches


def npu_scatter_pa_cache(
    key: Tensor,
    slot_mapping: Tensor,
    *,
    compress_lens: Tensor | None = None,
    compress_seq_offsets: Tensor | None = None,
    seq_lens: Tensor | None = None,
    key_cache: Tensor,
) -> Tensor:
    scattered(key, key_cache, slot_mapping, compress_lens, compress_seq_offsets, seq_lens)
    return key_cache


def npu_gather_pa_kv_cache(
    key_cache: Tensor,
    value_cache: Tensor,
    block_tables: Tensor,
    seq_lens: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    seq_offset: Tensor | None = None,
    is_seq_lens_cumsum: bool = False,
) -> None:
    counts = seq_lens.diff().tolist() if is_seq_lens_cumsum else seq_lens.tolist()
    size, row = key_cache.shape[1], 0
    for sequence, count in enumerate(counts):
        first = 0 if seq_offset is None else int(seq_offset[sequence]) // size
        for token in range(count):
            column = first + token // size
            block = int(block_tables[sequence, column]) if column < block_tables.shape[1] else -1
            known = 0 <= block < len(key_cache)
            key[row] = key_cache[block, token % size] if known else 0
            value[row] = value_cache[block, token % size] if known else 0
            row += 1


def npu_gather_pa_kv_cache_functional(
    key_cache: Tensor,
    value_cache: Tensor,
    block_tables: Tensor,
    seq_lens: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    seq_offset: Tensor | None = None,
    is_seq_lens_cumsum: bool = False,
) -> tuple[Tensor, Tensor]:
    found = key.clone(), value.clone()
    npu_gather_pa_kv_cache(
        key_cache, value_cache, block_tables, seq_lens, *found, seq_offset=seq_offset,
        is_seq_lens_cumsum=is_seq_lens_cumsum,
    )  # fmt: skip
    return found


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


def npu_advance_step_flashattn(
    input_tokens: Tensor,
    sampled_token_ids: Tensor,
    input_positions: Tensor,
    seq_lens: Tensor,
    slot_mapping: Tensor,
    block_tables: Tensor,
    num_seqs: int,
    num_queries: int,
    block_size: int,
    *,
    spec_token: Tensor | None = None,
    accepted_num: Tensor | None = None,
) -> None:
    each = 1 if spec_token is None else 1 + spec_token.shape[1]
    for at in range(num_seqs * each):
        i, j = divmod(at, each)
        if i >= num_queries:
            input_tokens[at], input_positions[at], slot_mapping[at] = 0, 0, -1
            continue
        if spec_token is None or accepted_num is None:
            input_tokens[at], position = sampled_token_ids[i, 0], int(seq_lens[at])
        else:
            sampled = [token for token in sampled_token_ids[i].tolist() if token >= 0]
            input_tokens[at] = sampled[-1] if j == 0 else spec_token[i, j - 1]
            position = int(input_positions[at]) + 1 + int(accepted_num[i])
        input_positions[at], seq_lens[at] = position, position + 1
        slot_mapping[at] = int(block_tables[i, position // block_size]) * block_size + position % block_size


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
    *args: Tensor, cache_index: Tensor, **kwargs: Any
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None, Tensor | None]:
    x, sine = args[0], args[7]
    rounds = kwargs.get("weight_quant_mode") == 2 and kwargs.get("kv_cache_quant_mode") == 1
    found = prolog(*args[:9], cache_index, *args[9:], kwargs, round_queries=rounds)  # type: ignore[misc]
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


def _npu_reshape_and_cache(
    key: Tensor, value: Tensor, key_cache: Tensor, value_cache: Tensor, slot_indices: Tensor
) -> None:
    for tokens, cache in ((key, key_cache), (value, value_cache)):
        for slot, token in zip(slot_indices.tolist(), tokens, strict=True):
            if cache.shape[-2:] == token.shape:
                put(cache, slot, token)
            else:
                put_in_chunks(cache, slot, token, cache.shape[2], cache.shape[3])


def _npu_paged_attention(
    query: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    num_kv_heads: int,
    num_heads: int,
    scale_value: float,
    block_table: Tensor,
    context_lens: Tensor,
    out: Tensor,
    workspace: Tensor | None = None,
) -> None:
    is_in_chunks = key_cache.shape[2] != num_kv_heads
    for row, length in enumerate(context_lens.tolist()):
        places = [(int(block_table[row, i // 4]), i % 4) for i in range(length)]
        for head in range(num_heads):
            group = head * num_kv_heads // num_heads
            keys, values = (
                torch.stack(
                    [
                        wide(cache[block, :, place].reshape(num_kv_heads, -1)[group])
                        if is_in_chunks
                        else wide(cache[block, place, group])
                        for block, place in places
                    ]
                )
                for cache in (key_cache, value_cache)
            )
            out[row, head] = ((keys @ wide(query[row, head])) * scale_value).softmax(0) @ values


def _npu_rotary_embedding(
    positions: Tensor, query: Tensor, key: Tensor, head_size: int, cos_sin_cache: Tensor, is_neox_style: bool
) -> None:
    half = head_size // 2
    for given in (query, key):
        old = wide(given.clone()).view(len(positions), -1, head_size)
        new = given.view(old.shape)
        for token, position in enumerate(positions.tolist()):
            for i in range(half):
                cos, sin = (float(cos_sin_cache[position, at]) for at in (i, i + half))
                a, b = (i, i + half) if is_neox_style else (2 * i, 2 * i + 1)
                new[token, :, a] = old[token, :, a] * cos - old[token, :, b] * sin
                new[token, :, b] = old[token, :, a] * sin + old[token, :, b] * cos
