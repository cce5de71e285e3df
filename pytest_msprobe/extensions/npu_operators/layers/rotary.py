"""Rotary position embedding."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from pytest_msprobe.engine.replay.ops.operators import golden
from pytest_msprobe.engine.replay.ops.traits import OpInfo
from pytest_msprobe.extensions.npu_operators.inputs import moe_routing as routing

if TYPE_CHECKING:
    from collections.abc import Sequence


def _rotated(x: Tensor, rotary_mode: str) -> Tensor:
    """Turn every pair of the last dimension by 90 degrees: (a, b) becomes (-b, a)."""
    if rotary_mode == "half":
        first, second = x.chunk(2, -1)
        return torch.cat((-second, first), -1)
    if rotary_mode == "interleave":
        return torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2)
    raise ValueError(f"rotary_mode {rotary_mode!r} has no golden definition; known are 'half' and 'interleave'")


@golden("NPU.npu_rotary_mul")
def npu_rotary_mul(
    self: Tensor, r1: Tensor, r2: Tensor, rotary_mode: str = "half", rotate: Tensor | None = None
) -> Tensor:
    """Return r1 * x + r2 * rotated(x) (Su et al., RoFormer, 2021); r1 (cos) and r2 (sin) broadcast against x.

    ``rotary_mode`` says which elements of the last dimension are a pair: ``"half"`` (i, i + D/2) or
    ``"interleave"`` (2i, 2i + 1). Raises ValueError for another one. ``rotate`` (D, D), where given, is the matrix
    by which x is multiplied from the right in place of that, whatever the mode.
    """
    return r1 * self + r2 * (_rotated(self, rotary_mode) if rotate is None else self @ rotate)


@golden("Aten.npu_rotary_mul_backward")
def npu_rotary_mul_backward(
    grad: Tensor, self: Tensor, r1: Tensor, r2: Tensor, rotary_mode: str = "half"
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of :func:`npu_rotary_mul` for x, r1 and r2; the last two summed over what was broadcast."""
    # the rotation's transpose is its inverse, which is minus itself
    grad_self = (grad * r1 - _rotated(grad * r2, rotary_mode)).sum_to_size(self.shape)
    grad_r1 = (grad * self).sum_to_size(r1.shape)
    grad_r2 = (grad * _rotated(self, rotary_mode)).sum_to_size(r2.shape)
    return grad_self, grad_r1, grad_r2


@golden("NPU.npu_interleave_rope")
def npu_interleave_rope(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Take the even elements of the last dimension, then the odd ones, and turn them as :func:`npu_rotary_mul`."""
    return npu_rotary_mul(torch.cat((x[..., ::2], x[..., 1::2]), -1), cos, sin)


@golden("NPU.npu_apply_rotary_pos_emb", OpInfo(in_place=True))
def npu_apply_rotary_pos_emb(
    query: Tensor, key: Tensor, cos: Tensor, sin: Tensor, layout: str = "BSND", rotary_mode: str = "half"
) -> tuple[Tensor, Tensor]:
    """Turn query and key in place as :func:`npu_rotary_mul`, and return them.

    cos and sin have one head, which every head shares; its place in ``layout`` is that in query and key.
    """
    return (
        query.copy_(npu_rotary_mul(query, cos, sin, rotary_mode)),
        key.copy_(npu_rotary_mul(key, cos, sin, rotary_mode)),
    )


@golden("NPU.npu_mrope", OpInfo(constraint=routing.rows_of(3, "cos_sin_cache", 0, "positions")))
def npu_mrope(
    positions: Tensor,
    query: Tensor,
    key: Tensor,
    cos_sin_cache: Tensor,
    head_size: int,
    *,
    mrope_section: Sequence[int] | None = None,
    rotary_mode: str = "half",
    cache_mode: str = "default",
) -> tuple[Tensor, Tensor]:
    """Turn the first dimensions of every head of query and key, (tokens, heads * head_size), by their positions.

    ``cos_sin_cache`` (length, 2 n) holds the cosines and sines of n angles for each position. ``positions`` is
    (tokens,), or (sections, tokens) with ``mrope_section``, which says how many of the n angles follow each row of
    positions: one section after the other, or, with ``cache_mode`` interleave, three rows by turns. ``rotary_mode`` is
    half (i, i + n) or interleaved (2i, 2i + 1). Raises ValueError for another mode.
    """
    cos, sin = cos_sin_cache[positions.long()].chunk(2, -1)
    if mrope_section is not None and any(mrope_section):
        cos, sin = (_by_section(table, mrope_section, cache_mode) for table in (cos, sin))
    turned = [_turned(torch.unflatten(x, -1, (-1, head_size)), cos, sin, rotary_mode).flatten(1) for x in (query, key)]
    return turned[0], turned[1]


def _by_section(angles: Tensor, sections: Sequence[int], cache_mode: str) -> Tensor:
    """Choose of (sections, tokens, n) which row each angle follows."""
    if cache_mode == "default":
        return torch.cat([part[i] for i, part in enumerate(torch.split(angles, list(sections), -1))], -1)
    if cache_mode != "interleave":
        raise ValueError(f"cache_mode {cache_mode!r} of npu_mrope is not one of default, interleave")
    selected = angles[0].clone()
    for row in (1, 2):
        selected[..., row : sections[1] * 3 : 3] = angles[row, ..., row : sections[1] * 3 : 3]
    return selected


def _turned(x: Tensor, cos: Tensor, sin: Tensor, rotary_mode: str) -> Tensor:
    """Turn (tokens, heads, head_size) by (tokens, n) angles; what is behind the first 2 n dimensions stays."""
    # The documentation names the second one "interleaved", the operator itself takes "interleave".
    if rotary_mode not in ("half", "interleave", "interleaved"):
        raise ValueError(f"rotary_mode {rotary_mode!r} of npu_mrope is not one of half, interleave")
    cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
    rotary, rest = x[..., : 2 * cos.shape[-1]], x[..., 2 * cos.shape[-1] :]
    if rotary_mode == "half":
        first, second = rotary.chunk(2, -1)
    else:
        first, second = rotary[..., ::2], rotary[..., 1::2]
    parts = (first * cos - second * sin, second * cos + first * sin)
    turned = torch.cat(parts, -1) if rotary_mode == "half" else torch.stack(parts, -1).flatten(-2)
    return torch.cat((turned, rest), -1)
