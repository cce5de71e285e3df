"""How great residuals of a correct result get, where rounding errors go up and down independently."""

from __future__ import annotations

import math

#: How likely it is that a residual of a correct result stands out, all residuals of a call taken together.
FALSE_STAND_OUT = 1e-6


class Limits:
    """The limits of ``count`` residuals of one call.

    A residual is taken to be sub-Gaussian. ``exponent`` is the logarithm of how many there are over `FALSE_STAND_OUT`.
    """

    def __init__(self, count: int) -> None:
        self.exponent = math.log(2 * count / FALSE_STAND_OUT)

    def of_one(self) -> float:
        """Return the limit of the square of one residual over its variance (Hoeffding)."""
        return 2 * self.exponent

    def of_mean(self, count: int) -> float:
        """Return the limit of the mean of so many such squares (Hsu, Kakade and Zhang, 2012)."""
        return 1 + 2 * math.sqrt(self.exponent / count) + 2 * self.exponent / count
