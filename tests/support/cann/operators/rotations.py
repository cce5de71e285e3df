"""Rotary position embeddings, turned pair by pair."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torch import Tensor


def _pairs(width: int, mode: str) -> Iterator[tuple[int, int]]:
    """The places in the last dimension that are turned together."""
    half = width // 2
    for i in range(half):
        yield (i, i + half) if mode == "half" else (2 * i, 2 * i + 1)


def _turned(x: Tensor, cos: Tensor, sin: Tensor, mode: str = "half") -> Tensor:
    """Turn in float64; cos and sin have a number for each place."""
    wide, cos, sin = x.double(), cos.double().expand(x.shape), sin.double().expand(x.shape)
    out = wide.clone()
    for a, b in _pairs(x.shape[-1], mode):
        out[..., a] = wide[..., a] * cos[..., a] - wide[..., b] * sin[..., a]
        out[..., b] = wide[..., b] * cos[..., b] + wide[..., a] * sin[..., b]
    return out


def npu_interleave_rope(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    width = x.shape[-1]
    order = [*range(0, width, 2), *range(1, width, 2)]
    return _turned(x[..., order], cos, sin).to(x.dtype)


def npu_apply_rotary_pos_emb(
    query: Tensor, key: Tensor, cos: Tensor, sin: Tensor, layout: str = "BSND", rotary_mode: str = "half"
) -> tuple[Tensor, Tensor]:
    for each in (query, key):
        each.copy_(_turned(each, cos, sin, rotary_mode))
    return query, key


def npu_mrope(
    positions: Tensor,
    query: Tensor,
    key: Tensor,
    cos_sin_cache: Tensor,
    head_size: int,
    *,
    mrope_section: Sequence[int] | None = None,
    rotary_mode: str | None = "half",
    cache_mode: str | None = "default",
) -> tuple[Tensor, Tensor]:
    angles = cos_sin_cache.shape[1] // 2
    rows = [0] * angles
    if mrope_section and any(mrope_section) and cache_mode == "default":
        rows = [row for row, count in enumerate(mrope_section) for _ in range(count)]
    elif mrope_section and any(mrope_section):
        rows = [i % 3 if i < 3 * mrope_section[1] else 0 for i in range(angles)]
    table = positions if positions.dim() > 1 else positions.unsqueeze(0)
    results = []
    for x in (query, key):
        heads = x.double().reshape(len(x), -1, head_size)
        out = heads.clone()
        pairs = list(_pairs(2 * angles, "half" if rotary_mode == "half" else "interleave"))
        for token in range(len(x)):
            for angle, (a, b) in enumerate(pairs):
                place = int(table[rows[angle], token])
                cos, sin = float(cos_sin_cache[place, angle]), float(cos_sin_cache[place, angles + angle])
                out[token, :, a] = heads[token, :, a] * cos - heads[token, :, b] * sin
                out[token, :, b] = heads[token, :, b] * cos + heads[token, :, a] * sin
        results.append(out.reshape(x.shape).to(x.dtype))
    return results[0], results[1]
