"""Judging a sample by the distribution it was drawn from, at every size and in every dtype."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

import torch

from pytest_msprobe.engine.replay.random_apis import tail_bound

if TYPE_CHECKING:
    from torch import Tensor

    from msprobe_standards.verdict import Verdict
    from pytest_msprobe.engine.replay.random_apis.distributions import Distribution

#: Half precision kernels draw their uniform numbers from a grid as coarse as the dtype, and what they make of them
#: is off by a few steps of that grid (docs/standards-reference.md, "Random results").
GRID_STEPS = 4
# up to here float64 holds every integer
_EXACT_INTEGERS = 1 << 53


def rounding(dtype: torch.dtype) -> float:
    """Return the distance from 1 to the next number of a float dtype; 0 for integers."""
    return torch.finfo(dtype).eps if dtype.is_floating_point else 0.0


def against(
    values: Tensor, distribution: Distribution, *, eps: float | None = None, spread: Tensor | None = None
) -> list[Verdict]:
    """Judge real ``values`` by the shares below quantiles, the range, and that they are not all the same.

    ``eps`` is the relative precision in which the values were computed, by default their dtype's; ``spread``
    says for each value how far rounding may have moved it, where that is more.
    """
    if values.numel() == 0:
        return []
    eps = rounding(values.dtype) if eps is None else eps
    x = values.flatten().double()
    if x.isnan().any():
        return [tail_bound.broken("NaN among the random values", nans=float(x.isnan().sum()))]
    moved = x.abs() * eps
    if max(abs(distribution.lowest), abs(distribution.highest)) > _EXACT_INTEGERS and not eps:
        moved = x.abs() * 2**-52
    width = distribution.highest - distribution.lowest
    if eps and width < inf:
        # uniform numbers stand on a grid whose step is that of numbers around the width, not around each of them
        moved = moved + eps * width if distribution.peak else moved
    if spread is not None:
        spread = spread.flatten().double()
        moved = torch.maximum(moved, spread)
    verdicts = _in_range(x, distribution, eps, spread)
    verdicts += _not_stuck(x, moved, distribution, eps)
    slack = distribution.bias + GRID_STEPS * eps
    lower, upper = x + moved, x - moved
    for threshold, probability in distribution.quantiles:
        count = int((lower <= threshold).sum()), int((upper <= threshold).sum())
        what = f"share of values up to {threshold:.6g}"
        verdicts.append(tail_bound.share(what, count, x.numel(), probability, slack))
    return verdicts


def _in_range(x: Tensor, distribution: Distribution, eps: float, spread: Tensor | None) -> list[Verdict]:
    # an end of the range that the dtype does not have is rounded to its neighbour
    beyond = [eps / 2 * abs(end) if abs(end) < inf else 0.0 for end in (distribution.lowest, distribution.highest)]
    low, high = (x, x) if spread is None else (x + spread, x - spread)
    outside = ~(low >= distribution.lowest - beyond[0]) | ~(high <= distribution.highest + beyond[1])
    count = int(outside.sum())
    if not count:
        return []
    example = float(x[outside][0])
    span = f"[{distribution.lowest:.6g}, {distribution.highest:.6g}]"
    return [
        tail_bound.broken(f"{count} of {x.numel()} values are outside of {span}, such as {example:.6g}", outside=count)
    ]


def _not_stuck(x: Tensor, moved: Tensor, distribution: Distribution, eps: float) -> list[Verdict]:
    if x.numel() < 2 or not bool((x == x[0]).all()):
        return []
    around = float(moved[0]) if x[0].isfinite() else 0.0
    largest = distribution.atom + distribution.bias + 2 * distribution.peak * around + GRID_STEPS * eps
    return [tail_bound.repeated(x.numel(), largest)]


def normal_moments(standardized: Tensor, eps: float, offset: float = 0.0) -> list[Verdict]:
    """Judge mean and variance of (x - mean) / std; ``offset`` is how far rounding may have moved one of them."""
    n = standardized.numel()
    finite = bool(standardized.isfinite().all())
    if n == 0 or not finite:
        return []
    slack = GRID_STEPS * eps + offset
    square = float(standardized.square().mean())
    return [
        tail_bound.normal_mean(float(standardized.mean()), n, slack),
        tail_bound.normal_variance(square, n, 2 * slack + slack * slack),
    ]


def uniform_moments(unit: Tensor, eps: float, offset: float = 0.0) -> list[Verdict]:
    """Judge mean and variance of (x - low) / (high - low); ``offset`` as for :func:`normal_moments`."""
    n = unit.numel()
    if n == 0 or not unit.isfinite().all():
        return []
    slack = GRID_STEPS * eps + offset
    variance = float((unit - 0.5).square().mean())
    mean = float(unit.mean())
    return [
        tail_bound.bounded_mean("mean as a share of the range", mean, n, 1 / 2, 1 / 12, 1 / 2, slack),
        tail_bound.bounded_mean(
            "variance over the squared range", variance, n, 1 / 12, 1 / 180, 1 / 6, slack + slack * slack
        ),
    ]
