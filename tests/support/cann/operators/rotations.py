"""Rotary position embeddings, turned pair by pair."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from tests.support.cann.operators.by_schema import Arguments, by_schema


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


@by_schema
def npu_interleave_rope(args: Arguments) -> Tensor:
    width = args.x.shape[-1]
    order = [*range(0, width, 2), *range(1, width, 2)]
    return _turned(args.x[..., order], args.cos, args.sin).to(args.x.dtype)


@by_schema
def npu_apply_rotary_pos_emb(args: Arguments) -> tuple[Tensor, Tensor]:
    for each in (args.query, args.key):
        each.copy_(_turned(each, args.cos, args.sin, args.rotary_mode))
    return args.query, args.key


@by_schema
def npu_mrope(args: Arguments) -> tuple[Tensor, Tensor]:
    angles = args.cos_sin_cache.shape[1] // 2
    rows = [0] * angles
    if args.mrope_section and any(args.mrope_section) and args.cache_mode == "default":
        rows = [row for row, count in enumerate(args.mrope_section) for _ in range(count)]
    elif args.mrope_section and any(args.mrope_section):
        rows = [i % 3 if i < 3 * args.mrope_section[1] else 0 for i in range(angles)]
    table = args.positions if args.positions.dim() > 1 else args.positions.unsqueeze(0)
    results = []
    for x in (args.query, args.key):
        heads = x.double().reshape(len(x), -1, args.head_size)
        out = heads.clone()
        pairs = list(_pairs(2 * angles, "half" if args.rotary_mode == "half" else "interleave"))
        for token in range(len(x)):
            for angle, (a, b) in enumerate(pairs):
                place = int(table[rows[angle], token])
                cos, sin = float(args.cos_sin_cache[place, angle]), float(args.cos_sin_cache[place, angles + angle])
                out[token, :, a] = heads[token, :, a] * cos - heads[token, :, b] * sin
                out[token, :, b] = heads[token, :, b] * cos + heads[token, :, a] * sin
        results.append(out.reshape(x.shape).to(x.dtype))
    return results[0], results[1]
