"""Which outputs of a failing record get an error map, and what their standards let an element err by."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from msprobe_standards import Standard, Verdict, fitting
from msprobe_standards.dtypes import family, float_format
from msprobe_standards.reasons import elements_in_words
from msprobe_standards.tensor_layouts import is_plain
from pytest_msprobe.engine.values.error_locations import error_map
from pytest_msprobe.engine.values.pytree import tensors_with_paths
from pytest_msprobe.engine.values.tolerance import Allowance, mean_magnitude
from pytest_msprobe.results.error_map import ErrorMap
from pytest_msprobe.results.result import OutputResult

# A map takes some 5 kB of a journal; a call may have hundreds of outputs.
_MOST_MAPS = 4
# The roundings of a right result spread evenly: the greatest is the square root of 3 times their root mean square.
_OF_MEAN = 2.0


def with_error_maps(
    results: Sequence[OutputResult],
    targets: Mapping[str, torch.Tensor],
    goldens: Mapping[str, torch.Tensor],
    baseline: Any,
    select: Callable[[Any], Standard],
) -> list[OutputResult]:
    """Return the results with a map of each of the worst that fail; ``select`` gives the standard of an output.

    ``baseline`` is the tree of its outputs, as far as it was asked for.
    """
    failing = [result for result in results if result.verdict.outcome == "fail"]
    if not failing:
        return list(results)
    worst = heapq.nlargest(_MOST_MAPS, failing, key=lambda result: result.verdict.margin)
    mapped, baselines = list(results), dict(tensors_with_paths(baseline))
    for place, result in enumerate(results):
        target, golden = targets.get(result.path), goldens.get(result.path)
        if any(result is each for each in worst) and target is not None and golden is not None and is_plain(golden):
            allowance = allowance_of(result.verdict, fitting(select(target), target.dtype), target.dtype, golden)
            found = error_map(target, golden, allowance, baseline=baselines.get(result.path))
            mapped[place] = replace(result, verdict=_with_count(result.verdict, found), error_map=found)
    return mapped


def _with_count(verdict: Verdict, found: ErrorMap | None) -> Verdict:
    """Return the verdict with the number of wrong elements, where its reason begins with the greatest error."""
    if found is None or not found.wrong or not verdict.reason.startswith("up to "):
        return verdict
    wrong = elements_in_words(found.wrong, math.prod(found.shape))
    return replace(verdict, reason=f"{wrong} wrong, {verdict.reason}")


def allowance_of(verdict: Verdict, standard: Standard, dtype: torch.dtype, golden: torch.Tensor) -> Allowance:
    """Return what an element may err by, where the verdict limits single elements or their mean error.

    A standard that counts wrong elements says by its bounds which are. Where no limit is about the error of elements,
    that is correct rounding: half a unit in the last place, of integers and bools none.
    """
    limits = {name: limit for name, limit in verdict.limits.items() if limit > 0}
    if family(dtype) in ("bool", "int"):
        return Allowance(ulps=0.5, absolute=limits.get("max_abs_err", 0.0))
    if "max_ulp_error" in limits:
        return Allowance(ulps=limits["max_ulp_error"])
    scaled = [name for name in ("max_scaled_error", "rms_scaled_error") if name in limits]
    if scaled:
        decisive = max(scaled, key=lambda name: verdict.metrics.get(name, 0.0) / limits[name])
        errors = limits[decisive] * (_OF_MEAN if decisive == "rms_scaled_error" else 1)
        return Allowance(scaled=errors * float_format(dtype).unit_roundoff, scale=mean_magnitude(golden))
    bounds = standard.bounds(dtype)
    if "ulp_error_proportion" in verdict.limits:
        return Allowance(ulps=bounds.ulp)
    if "rel_err_ratio" in verdict.limits:
        return Allowance(absolute=bounds.atol, relative=bounds.rtol)
    if "rel_err_thousandth" in limits:
        return Allowance(relative=1e-3)
    if "max_abs_err" in limits:
        return Allowance(absolute=limits["max_abs_err"])
    return Allowance(ulps=0.5)
