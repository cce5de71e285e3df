"""A matrix product as it is screened: factors, what is added, and the result that a device gave."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class Product:
    """``result`` is to be ``alpha`` * ``left`` @ ``right`` + ``beta`` * ``added``.

    All are CPU tensors of floats: ``left`` (m, k), ``right`` (k, n), ``result`` (m, n), in any strides, and ``added``
    of a shape that broadcasts to the result's.
    """

    left: torch.Tensor
    right: torch.Tensor
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
