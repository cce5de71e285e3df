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
    """Sums of g², g·d and d² over parts of a pair, g being the golden elements and d = t - g the errors.

    Of elements that are multiplied by ``factor``, a power of two, where their squares leave float64.
    """

    def __init__(self, length: int, factor: float = 1.0) -> None:
        """``length`` is that of the longest part."""
        self.gg = self.gd = self.dd = 0.0
        self.factor = factor
        self._doubles = np.empty((2, length))
        self._sums = np.empty((3, max(length // _PIECE, 1), 1, 1))

    def add_equal(self, golden: Floats) -> None:
        """Add a part without errors."""
        g = self._scaled(golden, 0)
        self.gg += dot(g, g)

    def add(self, golden: Floats, errors: Floats) -> None:
        """Add a part."""
        self._add(self._scaled(golden, 0), self._scaled(errors, 1))

    def add_apart(self, golden: Floats, target: Floats) -> None:
        """Add a part in float32 whose errors it does not hold."""
        g, d = self._scaled(golden, 0), self._scaled(target, 1)
        self._add(g, np.subtract(d, g, out=d))

    def _scaled(self, x: Floats, row: int) -> Doubles:
        if x.dtype != np.float64:
            np.copyto(self._doubles[row, : x.size], x)
            return self._doubles[row, : x.size]
        return x if self.factor == 1.0 else x * self.factor  # type: ignore[return-value]

    def _add(self, g: Doubles, d: Doubles) -> None:
        if g.size != self._sums.shape[1] * _PIECE:
            self.gg, self.gd, self.dd = self.gg + dot(g, g), self.gd + dot(g, d), self.dd + dot(d, d)
            return
        # One call for all pieces.
        g_rows, d_rows = g.reshape(-1, 1, _PIECE), d.reshape(-1, 1, _PIECE)
        g_columns, d_columns = g.reshape(-1, _PIECE, 1), d.reshape(-1, _PIECE, 1)
        np.matmul(g_rows, g_columns, out=self._sums[0])
        np.matmul(g_rows, d_columns, out=self._sums[1])
        np.matmul(d_rows, d_columns, out=self._sums[2])
        gg, gd, dd = np.add.reduce(self._sums[:, :, 0, 0], axis=1).tolist()
        self.gg, self.gd, self.dd = self.gg + gg, self.gd + gd, self.dd + dd
