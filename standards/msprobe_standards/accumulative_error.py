"""Accumulative error: absolute threshold with one wide bound, and balanced errors. For long sums."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import torch

from msprobe_standards.dtypes import msprobe_bounds, real_dtype
from msprobe_standards.protocol import Standard, within

if TYPE_CHECKING:
    from msprobe_standards.dtypes import Bounds
    from msprobe_standards.metrics import Metrics
    from msprobe_standards.verdict import Verdict

# mindstudio-probe 1.2.2, as all that docs/standards-reference.md, "Where the constants come from", calls msprobe's.
_BOUND = {torch.float16: 2**-8, torch.bfloat16: 2**-7}
_BALANCE = {torch.float16: 2**-20, torch.bfloat16: 2**-7}


@dataclass(frozen=True)
class AccumulativeError(Standard):
    """Limits on absolute error up to magnitude 1, on relative error above it, and on the error balance.

    Limits of 0 mean the dtype's own: 2^-8 and 2^-20 for float16, 2^-7 and 2^-7 for bfloat16, 2^-11 and 2^-14 for all
    others (mindstudio-probe 1.2.2).

    Args:
        bound: The allowed absolute error up to magnitude 1, and relative error above it.
        eb: The allowed error balance.
    """

    bound: float = 0.0
    eb: float = 0.0

    name: ClassVar[str] = "accumulative_error"
    wanted: ClassVar[frozenset[str]] = frozenset({"inf_nan_error_ratio", "rel_err_ratio", "abs_err_ratio", "eb"})
    # Correct rounding may be unbalanced: the balance of bfloat16 counts against the unrounded golden result.
    exact_passes: ClassVar[bool] = False

    def bounds(self, dtype: torch.dtype) -> Bounds:
        """Return the one bound as absolute and as relative limit, with everything up to 1 as small."""
        bound = self.bound or _BOUND.get(real_dtype(dtype), 2**-11)
        return replace(msprobe_bounds(dtype), small_value=1.0, atol=bound, rtol=bound)

    def decide(self, metrics: Metrics, baseline_metrics: Metrics | None) -> Verdict:
        """Judge the three shares and the balance."""
        balance = self.eb or _BALANCE.get(real_dtype(metrics.dtype), 2**-14)
        limits = {"inf_nan_error_ratio": 0.0, "rel_err_ratio": 0.0, "abs_err_ratio": 0.0, "eb": balance}
        return within(self.name, metrics, limits)
