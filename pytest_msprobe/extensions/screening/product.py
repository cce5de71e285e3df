"""A matrix product as it is screened: factors, what is added, and the result that a device gave."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from pytest_msprobe.extensions.screening.tile_sums import Matrix, blocks, sums_both_ways, tile_sums, tiles, tiles_of


@dataclass(frozen=True, slots=True)
class Product:
    """``result`` is to be ``alpha`` * ``left`` @ ``right`` + ``beta`` * ``added``.

    All are CPU tensors of floats: ``left`` (m, k), ``right`` (k, n), which may be one that is made block by block,
    ``result`` (m, n), in any strides, and ``added`` of a shape that broadcasts to the result's.
    """

    left: torch.Tensor
    right: Matrix
    result: torch.Tensor
    alpha: float = 1.0
    added: torch.Tensor | None = None
    beta: float = 1.0

    @property
    def operations(self) -> int:
        """How many multiplications and additions it takes."""
        return 2 * self.left.shape[0] * self.left.shape[1] * self.right.shape[1]

    def added_to(self, rows: slice | torch.Tensor, columns: slice | torch.Tensor) -> torch.Tensor:
        """Return in float64 what is added to some rows, or to all rows of some columns."""
        if self.added is None or not self.beta:
            return torch.zeros((), dtype=torch.float64)
        return self.beta * self.added.expand(self.result.shape)[rows][..., columns].double()

    def added_sums(self, y: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return in float64 what is added, summed up by tiles with weights of rows ``y`` (m,) and columns ``x`` (n,).

        The first is by rows and broadcasts to (m, tiles), the second by columns and broadcasts to (tiles, n).
        """
        if self.added is None or not self.beta:
            zero = torch.zeros(1, 1, dtype=torch.float64)
            return zero, zero
        if self.added.dim() == 1:
            row = self.beta * self.added.double()
            return tile_sums(row.unsqueeze(1), x).mT, tile_sums(y.unsqueeze(1)) * row
        by_rows = torch.empty(len(y), tiles(len(x)), dtype=torch.float64)
        by_columns = torch.empty(tiles(len(y)), len(x), dtype=torch.float64)
        for rows, columns, block in blocks(self.added.expand(self.result.shape), torch.float64):
            sums = sums_both_ways(block, y[rows], x[columns])
            by_rows[rows, tiles_of(columns)], by_columns[tiles_of(rows), columns] = sums
        return by_rows.mul_(self.beta), by_columns.mul_(self.beta)
