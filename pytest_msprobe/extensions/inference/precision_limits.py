"""Precision limits of two runs: how far they may be apart, and whether a module adds more."""

from __future__ import annotations

import math
from typing import Final

from pytest_msprobe.modes.compare.measure.float_dtypes import FLOAT_DTYPES, coarser, finer

#: Half the distance of 1 to the next number.
UNIT_ROUNDOFF: Final = {
    "float8": 2.0**-4,
    "bfloat16": 2.0**-8,
    "float16": 2.0**-11,
    "float32": 2.0**-24,
    "float64": 2.0**-53,
}
# How many roundings of a whole row an operator may add, and how much its sums in another order: choices that 8 models
# on a CPU keep by a factor of three and more.
_ROUNDINGS = 8.0


def operator_limit(dtype: str, width: int) -> float:
    """Return how far the results of one operator may be apart, as a fraction of their norm.

    Eight roundings of its dtype, and as many of sums of ``width`` terms in float32 (float64 for float64), whose errors
    grow with the square root of their number.
    """
    accumulated = UNIT_ROUNDOFF["float64" if dtype == "float64" else "float32"]
    return _ROUNDINGS * (UNIT_ROUNDOFF[dtype] + accumulated * math.sqrt(width))


def depth_limit(dtype: str, width: int, block: int) -> float:
    """Return how far results may be apart behind so many blocks, each of which adds independent roundings."""
    return operator_limit(dtype, width) * math.sqrt(1 + block)


class RunningPrecision:
    """The dtype that both runs' results are known to, along the forward pass.

    Results of two dtypes are as precise as the coarser one at the beginning of the model. Where only one run becomes
    coarser in the middle, precision does not explain that: the other run has not done so.
    """

    def __init__(self) -> None:
        self._dtype = ""

    def at(self, target: str, golden: str) -> str:
        """Return the dtype by which a value of two dtypes is judged, and keep it for those that follow."""
        if not self._dtype:
            self._dtype = coarser(target, golden)
        self._dtype = coarser(self._dtype, finer(target, golden))
        return self._dtype

    def is_coarser(self, target: str, golden: str) -> bool:
        """Return whether one run rounds a value more coarsely than the other and than all before."""
        return bool(self._dtype) and FLOAT_DTYPES.index(coarser(target, golden)) < FLOAT_DTYPES.index(self._dtype)
