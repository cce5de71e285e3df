"""The inner products of a pair in float64: of golden elements and errors, from which all others follow."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from msprobe_standards.chunking import dot

if TYPE_CHECKING:
    from pytest_msprobe.modes.compare.part import Doubles, Floats

# OpenBLAS, numpy's BLAS, computes inner products of more than 10 000 elements on several threads.
_PIECE = 8192


class Products:
    """Inner products over parts of a pair, g being the golden elements and d = t - g the errors.

    Of elements that are multiplied by ``factor``, a power of two, where their squares leave float64.
    """

    def __init__(self, rows: Doubles, factor: float = 1.0) -> None:
        """``rows`` are two, as long as the longest part, to work in."""
        self.factor = factor
        self._rows = rows
        # Of pieces: to add up those of all parts at last costs a call in place of one for each part.
        self._sums: list[Doubles] = []

    def add(self, golden: Floats, errors: Floats) -> None:
        """Add a part."""
        self._add(self._scaled(golden, 0), self._scaled(errors, 1))

    def add_apart(self, golden: Floats, target: Floats) -> None:
        """Add a part in float32 whose errors it does not hold."""
        g, d = self._scaled(golden, 0), self._scaled(target, 1)
        self._add(g, np.subtract(d, g, out=d))

    def add_equal(self, golden: Floats) -> None:
        """Add a part without errors."""
        g = self._scaled(golden, 0)
        self._sums.append(np.array([[dot(g, g)], [0.0], [0.0]]))

    def total(self) -> tuple[float, float, float]:
        """Return the sums of g², g·d and d²."""
        gg, gd, dd = np.concatenate(self._sums, axis=1).sum(axis=1).tolist() if self._sums else (0.0, 0.0, 0.0)
        return gg, gd, dd

    def _scaled(self, x: Floats, row: int) -> Doubles:
        if x.dtype != np.float64:
            np.copyto(self._rows[row, : x.size], x)
            return self._rows[row, : x.size]
        return x if self.factor == 1.0 else x * self.factor  # type: ignore[return-value]

    def _add(self, g: Doubles, d: Doubles) -> None:
        if g.size % _PIECE:
            self._sums.append(np.array([[dot(g, g)], [dot(g, d)], [dot(d, d)]]))
            return
        sums = np.empty((3, g.size // _PIECE, 1, 1))
        g_rows, g_columns = g.reshape(-1, 1, _PIECE), g.reshape(-1, _PIECE, 1)
        d_rows, d_columns = d.reshape(-1, 1, _PIECE), d.reshape(-1, _PIECE, 1)
        np.matmul(g_rows, g_columns, out=sums[0])
        np.matmul(g_rows, d_columns, out=sums[1])
        np.matmul(d_rows, d_columns, out=sums[2])
        self._sums.append(sums.reshape(3, -1))
