"""Attention of one query at a time to keys gathered for it, in numpy: what the kernels of this folder share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

Array = np.ndarray[Any, np.dtype[Any]]


def wide(x: Tensor) -> Array:
    return x.detach().double().numpy()


def ends_to_ranges(ends: Any) -> list[range]:
    """The rows of each packed sequence."""
    stops = [int(end) for end in ends]
    return [range(start, max(start, stop)) for start, stop in zip([0, *stops], stops, strict=False)]


def attend(q: Array, keys: Array, values: Array, scale: float, sink: float | None = None) -> tuple[Array, float, float]:
    """One head's output, highest score and sum of exponentials."""
    if not len(keys):
        if sink is None:
            return np.zeros(values.shape[-1]), -np.inf, 0.0
        return np.zeros(values.shape[-1]), sink, 1.0
    scores = keys @ q * scale
    highest = float(scores.max()) if sink is None else max(float(scores.max()), sink)
    powers = np.exp(scores - highest)
    total = float(powers.sum()) + (0.0 if sink is None else float(np.exp(sink - highest)))
    return powers @ values / total, highest, total


def gradients(
    q: Array, keys: Array, values: Array, scale: float, weights: Array, out: Array, arriving: Array
) -> tuple[Array, Array, Array]:
    """One head's gradients for its query and for the keys and values that it was given."""
    of_scores = weights * (values @ arriving - out @ arriving) * scale
    return of_scores @ keys, np.outer(of_scores, q), np.outer(weights, arriving)


def like(array: Array, tensor: Tensor) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(array)).to(tensor.dtype)


def single(array: Array) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(array)).float()


class Tokens:
    """Where the tokens of sequences are: (sequence, token) -> index into the tensor."""

    def __init__(self, tensor: Tensor, layout: str, lengths: Any, table: Tensor | None = None) -> None:
        self.layout = layout
        if layout == "TND":
            self.rows = ends_to_ranges(lengths)
            self.lengths = [len(rows) for rows in self.rows]
        elif layout == "PA_BSND":
            assert table is not None
            self.lengths, self.table, self.page = [int(n) for n in lengths], table.tolist(), tensor.shape[1]
        else:
            everything = [tensor.shape[1]] * tensor.shape[0]
            self.lengths = everything if lengths is None else [int(n) for n in lengths]

    def __len__(self) -> int:
        return len(self.lengths)

    def at(self, sequence: int, token: int) -> tuple[int, ...]:
        if self.layout == "TND":
            return (self.rows[sequence][token],)
        if self.layout == "PA_BSND":
            return (self.table[sequence][token // self.page], token % self.page)
        return (sequence, token)

    def gather(self, array: Array, sequence: int, tokens: Sequence[int], head: int) -> Array:
        return np.array([array[(*self.at(sequence, token), head)] for token in tokens]).reshape(-1, array.shape[-1])
