"""How far what a device gave for attention is from the sums that it should have, by rows, tiles and heads."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from msprobe_standards.dtypes import float_format
from pytest_msprobe.extensions.screening.attention_sketches import Sum, columns_of
from pytest_msprobe.extensions.screening.residuals import Limits, Residual
from pytest_msprobe.extensions.screening.tile_sums import TILE


@dataclass(frozen=True, slots=True)
class Summed:
    """A group's part of a result, (heads, rows, columns), its sketch (columns, tiles) and what it should sum up to."""

    result: torch.Tensor
    sketch: torch.Tensor
    sum: Sum


def residuals(parts: Sequence[Summed], scale: float, roundoffs: float, groups: int) -> dict[str, Residual]:
    """Return the worst residuals of a result by kind, each as a share of its limit.

    An element's error is taken to have a standard deviation of at most ``roundoffs`` unit roundoffs of
    max(|element|, ``scale``), the mean magnitude of the whole result, and what a row's columns share. The limits are
    those of so many ``groups``. A NaN is the worst.
    """
    form = float_format(parts[0].result.dtype)
    heads, tiles, rows = parts[0].sum.value.shape
    blocks = -(-rows // TILE)
    limits = Limits(groups * heads * (tiles * (rows + blocks) + rows + 1) + 1)
    variance = (roundoffs * form.unit_roundoff) ** 2
    found: dict[str, Residual] = {}
    total = 0.0
    for i, part in enumerate(parts):
        squares = _squares(part, max(scale, form.min_normal)).div_(variance)
        total += float(squares.mean())
        for kind, values, size, limit in _kinds(squares, columns_of(len(part.sketch)), limits):
            share = float(values.max()) / limit
            if kind not in found or share > found[kind].share or math.isnan(share):
                found[kind] = Residual(share, _where(int(values.argmax()), values.shape, size, i * heads))
    found["all heads"] = Residual(total / len(parts) / limits.of_mean(len(parts) * heads * tiles * rows), "the whole")
    return found


def _squares(part: Summed, least: float) -> torch.Tensor:
    """Return the squares of residuals over what they are where each element errs by itself, (heads, tiles, rows)."""
    squares = torch.empty(part.sum.value.shape, dtype=torch.float64)
    sketch, shared = part.sketch.double().mT, part.sum.shared.expand(squares.shape)
    for head, result in enumerate(part.result):
        values = result.double()
        torch.mm(sketch, values.mT, out=squares[head]).sub_(part.sum.value[head]).square_()
        weights = sketch.square() @ values.abs().clamp_(min=least).square_().mT
        squares[head] /= weights.add_(shared[head])
    return squares


def _kinds(
    squares: torch.Tensor, columns: int, limits: Limits
) -> list[tuple[str, torch.Tensor, tuple[int, int], float]]:
    """Return each kind of residual with its squares, (heads, tiles, rows), and its limit.

    Next to them is how many columns and rows one is of, 0 for all; a tile has so many ``columns``.
    """
    heads, tiles, rows = squares.shape
    size = min(TILE, rows)
    blocks = squares[..., : rows // size * size].reshape(heads, tiles, -1, size).mean(3)
    return [
        ("row in a tile", squares, (columns, 1), limits.of_one()),
        ("row", squares.mean(1, keepdim=True), (0, 1), limits.of_mean(tiles)),
        ("tile", blocks, (columns, size), limits.of_mean(size)),
        ("head", squares.mean((1, 2), keepdim=True), (0, 0), limits.of_mean(tiles * rows)),
    ]


def _where(at: int, shape: Sequence[int], size: tuple[int, int], first: int) -> str:
    """Say which head, rows and columns one of (heads, tiles, rows) is of."""
    head, rest = divmod(at, shape[1] * shape[2])
    places = zip(("column", "row"), divmod(rest, shape[2]), size, strict=True)
    words = [f"{name} {at}" if step == 1 else f"{name}s from {at * step}" for name, at, step in places if step]
    return ", ".join([f"head {first + head}", *reversed(words)])
