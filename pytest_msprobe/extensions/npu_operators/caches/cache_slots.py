"""Slots of a cache for tokens: slot s is token s % size of block s // size; negative ones are skipped."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_msprobe.extensions.npu_operators.quantization.quantization import rounded
from pytest_msprobe.extensions.npu_operators.reference_arguments import at_least_float32

if TYPE_CHECKING:
    from torch import Tensor


def write_tokens(cache: Tensor, slots: Tensor, tokens: Tensor) -> None:
    """Write tokens (T, ...) into a cache (blocks, size, ...) in place."""
    kept = slots >= 0
    places = slots[kept].long()
    size = cache.shape[1]
    cache[places // size, places % size] = tokens[kept].to(cache.dtype)


def write_in_chunks(cache: Tensor, slots: Tensor, tokens: Tensor) -> None:
    """Write tokens (T, W) into a cache (blocks, W / c, size, c) in place: what the device calls FRACTAL_NZ."""
    kept = slots >= 0
    places = slots[kept].long()
    size, chunk = cache.shape[2], cache.shape[3]
    cache[places // size, :, places % size] = tokens[kept].reshape(len(places), -1, chunk).to(cache.dtype)


def as_chunks(cache: Tensor) -> Tensor:
    """Return a cache of heads, (blocks, size, N, D), as its memory is laid out in chunks: (blocks, N * D / c, size, c).

    A chunk has 32 bytes: 32 elements of int8, 16 of the floats that caches hold.
    """
    blocks, size = cache.shape[:2]
    return cache.view(blocks, -1, size, 16 if cache.is_floating_point() else 32)


def quantized_tokens(tokens: Tensor, scale: Tensor | None, offset: Tensor | None, *, divide: bool) -> Tensor:
    """Return round(tokens * scale + offset) in int8, or of a quotient; without a scale the tokens as they are."""
    if scale is None:
        return tokens
    wide, factor = at_least_float32(tokens), at_least_float32(scale)
    scaled = wide / factor if divide else wide * factor
    return rounded(scaled if offset is None else scaled + at_least_float32(offset))
