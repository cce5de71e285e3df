"""Drift without ties: a value halfway between two neighbours may be rounded to either of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from msprobe_standards.dtypes import float_format

if TYPE_CHECKING:
    from msprobe_standards.metrics import Metrics
    from msprobe_standards.verdict import Verdict


def is_drift_upward(verdict: Verdict, metrics: Metrics) -> bool:
    """Return whether a verdict fails by a drift away from zero, which ties alone may make."""
    if verdict.outcome != "fail" or "gain_error" not in verdict.metrics:
        return False
    return metrics["gain_error"] > 0 and verdict.metrics["gain_error"] > verdict.limits["gain_error"]


def without_ties(
    metrics: Metrics,
    target: torch.Tensor,
    golden: torch.Tensor,
    dtype: torch.dtype,
    measured: Callable[[torch.Tensor], Metrics],
) -> Metrics:
    """Return metrics whose drift is that of the elements that are not exact ties.

    Rounding ties away from zero is as near as rounding them to even, and drifts. A drift towards zero is left as it is:
    cutting off rounds ties that way too.

    Args:
        metrics: The metrics of all elements.
        target: The target's result.
        golden: The golden result, real numbers.
        dtype: The dtype that the target is rounded to.
        measured: Returns the metrics of another golden result.

    Returns:
        The metrics.
    """
    if golden.is_complex():
        return metrics
    form, exact = float_format(dtype), golden.double()
    exponent = torch.frexp(exact).exponent.clamp_min(torch.frexp(exact.new_tensor(form.min_normal)).exponent)
    half = torch.ldexp(torch.ones_like(exact), exponent - form.mantissa_bits - 2)
    is_tie = (target.double() - exact).abs() == half
    nearest = measured(torch.where(is_tie, target.to(golden.dtype), golden))
    drift = {name: nearest[name] for name in ("gain_error", "gain_z")}
    return replace(metrics, values_by_name={**metrics, **drift})
