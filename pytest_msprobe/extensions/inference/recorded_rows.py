"""Recorded tensors as one row for each token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from msprobe_hooks.errors import DumpError
from pytest_msprobe.extensions.inference.token_layout import Integers, TokenLayout
from pytest_msprobe.modes.compare.measure.load import load
from pytest_msprobe.results.skip_reasons import Skip

if TYPE_CHECKING:
    from msprobe_hooks.dump.reader import Dump
    from msprobe_hooks.dump.values import Value

# Ranks that hold copies differ by rounding at most.
_COPIES = 1e-2


class UnalignedError(Exception):
    """A tensor has no row for each token; the message says its shape."""


def read_tensor(value: Value, dump: Dump) -> torch.Tensor:
    """Return a recorded tensor. Raises DumpError where its file is missing or unusable."""
    try:
        return load(value, dump).detach()
    except Skip as skip:
        raise DumpError(f"{value.name}: {skip}") from None


def read_integers(value: Value, dump: Dump) -> Integers | None:
    """Return a recorded tensor of integers or bools, None where it is none or was not kept."""
    dtype = value.dtype.lower()
    if value.data_name is None or not ("int" in dtype or dtype.endswith("bool")):
        return None
    try:
        return read_tensor(value, dump).to(torch.int64).numpy()
    except DumpError:
        return None


def by_row(tensor: torch.Tensor, layout: TokenLayout, *, has_heads: bool = False) -> torch.Tensor:
    """Return a tensor with one row for each row of a pass, or fewer where it holds some of them only.

    Dimensions of (sequences, tokens), (tokens, sequences) and (tokens,) are understood, and where the tensor
    ``has_heads`` several rows for each token. Raises UnalignedError where no dimension is that of the tokens.
    """
    shape = tuple(tensor.shape)
    if len(layout.shape) == 2:
        sequences, tokens = layout.shape
        if shape[:2] == (sequences, tokens):
            return tensor.reshape(layout.rows, -1)
        if shape[:2] == (tokens, sequences):
            return tensor.transpose(0, 1).reshape(layout.rows, -1)
        if len(shape) == 3 and shape[0] == sequences and shape[1] < tokens:
            return tensor.reshape(-1, shape[2])
    if len(shape) == 3 and shape[0] == 1:
        tensor, shape = tensor[0], shape[1:]
    if not shape or (len(shape) == 1 and shape[0] != layout.rows):
        raise UnalignedError(f"shape {list(shape)} for {layout.rows} tokens")
    if has_heads and len(shape) == 2 and shape[0] % layout.rows == 0:
        return tensor.reshape(layout.rows, -1)
    return tensor.reshape(shape[0], -1)


def row_places(rows: int, layout: TokenLayout) -> Integers:
    """Return where in a tensor of so many rows each row of a pass is, -1 for those that it does not hold.

    A tensor holds all rows, padded behind them or not; or the last of each request, as logits of an engine do; or the
    last ones of each sequence.
    """
    if rows >= layout.rows:
        return np.arange(layout.rows)
    places = np.full(layout.rows, -1)
    if rows == len(layout.segments):
        for number, segment in enumerate(layout.segments):
            places[segment.rows[-1]] = number
    elif len(layout.shape) == 2 and rows % layout.shape[0] == 0:
        length = rows // layout.shape[0]
        whole = places.reshape(layout.shape)
        whole[:, -length:] = np.arange(rows).reshape(layout.shape[0], length)
    else:
        raise UnalignedError(f"{rows} rows for {layout.rows} tokens")
    return places


def joined(
    parts: Sequence[torch.Tensor], layout: TokenLayout, features: int | None, sharded: int | None
) -> torch.Tensor:
    """Return one tensor of rows from those of the ranks that share a module.

    Ranks hold rows of their own (sequence parallelism), copies, columns of their own (``sharded`` 0), or parts of a
    sum. ``features`` is how many columns the whole has, None where that is unknown.
    """
    first = parts[0]
    width, ranks = first.shape[1], len(parts)
    if ranks == 1 or (features in (None, width) and sharded is None and _are_all_copies(parts)):
        return first
    if all(len(part) < layout.rows for part in parts) and sum(map(len, parts)) == layout.rows:
        return torch.cat(list(parts))
    if features is None:
        features = width * ranks if sharded == 0 else width
    if width < features:
        copies = max(width * ranks // features, 1)
        return torch.cat(list(parts)[::copies], dim=1)[:, :features]
    if _are_all_copies(parts):
        return first
    return torch.stack([part.double() for part in parts]).sum(dim=0).to(torch.promote_types(first.dtype, torch.float32))


def _are_all_copies(parts: Sequence[torch.Tensor]) -> bool:
    return all(_are_copies(parts[0], part) for part in parts[1:])


def _are_copies(one: torch.Tensor, other: torch.Tensor) -> bool:
    if one.shape != other.shape:
        return False
    distance = (one.double() - other.double()).norm()
    return bool(distance <= _COPIES * one.double().norm())
