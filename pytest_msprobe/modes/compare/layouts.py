"""Two recorded tensors of any layout as two blocks of elements that lie side by side."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from msprobe_standards.tensor_layouts import is_plain


@dataclass(frozen=True, slots=True)
class Pair:
    """Two plain tensors of one shape; ``places`` are the coordinates of their rows where they hold what is stored."""

    target: torch.Tensor
    golden: torch.Tensor
    places: torch.Tensor | None = None

    def coordinates(self, index: tuple[int, ...] | None) -> tuple[int, ...] | None:
        """Return where in the recorded tensors an element of the pair is."""
        if index is None or self.places is None:
            return index
        return (*map(int, self.places[:, index[0]]), *index[1:])


def plain_pair(target: torch.Tensor, golden: torch.Tensor) -> Pair:
    """Return the elements of two tensors of one shape: of sparse ones those that either stores, 0 for the other's.

    Quantized tensors count by the numbers that they stand for. A sparse tensor beside a dense one is made dense.
    """
    target, golden = (tensor.dequantize() if tensor.is_quantized else tensor for tensor in (target, golden))
    if is_plain(target) or is_plain(golden):
        return Pair(*(tensor if is_plain(tensor) else tensor.to_dense() for tensor in (target, golden)))
    stored = [tensor.to_sparse(layout=torch.sparse_coo).coalesce() for tensor in (target, golden)]
    if stored[0].sparse_dim() != stored[1].sparse_dim():
        return Pair(target.to_dense(), golden.to_dense())
    indices = [tensor.indices() for tensor in stored]
    places, rows = torch.unique(torch.cat(indices, dim=1), dim=1, return_inverse=True)
    parts = rows.split([index.shape[1] for index in indices])
    values = [_spread(each.values(), at, places.shape[1]) for each, at in zip(stored, parts, strict=True)]
    return Pair(values[0], values[1], places)


def _spread(values: torch.Tensor, rows: torch.Tensor, count: int) -> torch.Tensor:
    spread = torch.zeros((count, *values.shape[1:]), dtype=values.dtype)
    spread[rows] = values
    return spread
