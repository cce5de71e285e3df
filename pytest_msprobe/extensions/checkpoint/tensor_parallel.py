"""The shards of tensor parallel ranks as one parameter, and whether ranks that hold the same hold the same values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from pytest_msprobe.errors import CheckpointError
from pytest_msprobe.extensions.checkpoint.checkpoint_files import Parameter, Placed, joined, rows_of
from pytest_msprobe.extensions.model_names.fused_parts import ModelSizes

_VOCABULARY = ("embed_tokens.weight", "lm_head.weight")
_KEY_VALUE = (".k_proj.", ".v_proj.")


@dataclass(frozen=True, slots=True)
class RankPart:
    """Part that rank ``number`` of ``size`` tensor parallel ranks holds of a parameter shared along ``axis``."""

    rank: int
    number: int
    size: int
    axis: int | None
    part: Parameter


def whole_of(name: str, parts: Sequence[RankPart], shape: tuple[int, ...] | None, sizes: ModelSizes) -> Parameter:
    """Return the whole of what ranks hold; ``shape`` is that on the other side, where it is known.

    Raises CheckpointError where shares are missing or do not fit.
    """
    first = parts[0]
    axis = _axis(first, shape)
    places: dict[int, list[RankPart]] = {}
    for part in parts:
        number = 0 if axis is None or part.size == 1 else part.number // _same(name, part.size, sizes)
        places.setdefault(number, []).append(part)
    count = 1 if axis is None or first.size == 1 else first.size // _same(name, first.size, sizes)
    missing = next((number for number in range(count) if number not in places), None)
    if missing is not None:
        raise CheckpointError(
            f"no rank holds share {missing} of {count} of {name}", remedy="write the weights of all ranks"
        )
    fault = next((text for number in sorted(places) if (text := _difference(places[number]))), "")
    whole = first.part if count == 1 else _joined(name, [places[number][0] for number in range(count)], axis or 0)
    whole = _without_padding(name, whole, shape)
    return replace(whole, fault=whole.fault or fault)


def _joined(name: str, parts: Sequence[RankPart], axis: int) -> Parameter:
    start, placed = 0, []
    for part in parts:
        words = f"tensor parallel rank {part.number}"
        placed.append(Placed(part.part, words, *((start, 0) if axis == 0 else (0, start))))
        start += part.part.shape[axis]
    shape = list(parts[0].part.shape)
    shape[axis] = start
    return joined(name, placed, tuple(shape))


def _axis(first: RankPart, shape: tuple[int, ...] | None) -> int | None:
    """Return along which axis ranks share: that of the name, unless shapes of the other side show another."""
    own_shape = first.part.shape
    if shape is not None and len(shape) == len(own_shape) and first.size > 1:
        if shape == own_shape:
            return None
        if first.axis is None:
            return next((axis for axis in range(len(own_shape)) if own_shape[axis] * first.size == shape[axis]), None)
    return first.axis if first.axis is None or first.axis < len(own_shape) else None


def _same(name: str, size: int, sizes: ModelSizes) -> int:
    """Return how many ranks hold the same key and value heads, where there are more ranks than heads."""
    heads = sizes.kv_heads
    return size // heads if heads and size > heads and any(part in name for part in _KEY_VALUE) else 1


def _difference(parts: Sequence[RankPart]) -> str:
    """Return in words that ranks which hold the same part hold different values of it."""
    if len(parts) == 1:
        return ""
    first = parts[0].part.digest().own.rows
    odd = [part.rank for part in parts[1:] if not np.array_equal(part.part.digest().own.rows, first)]
    if not odd:
        return ""
    ranks = f"rank {odd[0]} holds" if len(odd) == 1 else f"ranks {', '.join(map(str, odd[:8]))} hold"
    return f"{ranks} other values than rank {parts[0].rank}"


def _without_padding(name: str, whole: Parameter, shape: tuple[int, ...] | None) -> Parameter:
    """Return a vocabulary without the rows that fill it up to a multiple of the ranks."""
    if shape is None or not name.endswith(_VOCABULARY) or len(whole.shape) != 2 or whole.shape[0] <= shape[0]:
        return whole
    padding = whole.shape[0] - shape[0]
    if whole.shape[1:] != shape[1:] or padding * 2 > whole.shape[0]:
        return whole
    cut = rows_of(whole, [slice(0, shape[0])])
    return replace(cut, note=f"{padding} rows of padding are not compared")
