"""How much a result deviates when the inputs are perturbed, and whether that is too much: msprobe's free benchmark.

A call run on its own device is judged by the ratio of the two results, one run on the CPU in higher precision by
absolute and relative differences. Both rules are msprobe's for PyTorch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from msprobe_hooks.instruments.perturbations import NOISE

_NOISE_OF_OTHERS = NOISE[torch.float32]
_BACKWARD_TOLERANCE = 1e-3

_THRESHOLDS = {torch.float16: 1.002, torch.bfloat16: 1.004}
_THRESHOLD_OF_OTHERS = 1.0002

_CPU_TOLERANCES = {torch.float16: 2**-11, torch.bfloat16: 2**-8}
_CPU_TOLERANCE_OF_OTHERS = 2**-14
_CPU_BIAS = 1e-4

# Elements that are looked at at once: 16 MiB of float32. Which number this is changes no verdict.
_CHUNK = 2**22

#: Something that a call returns, with its place among several.
Output = tuple[int | None, Any]


@dataclass(frozen=True, slots=True)
class Deviation:
    """How far one output deviates.

    ``index`` is its place among several, ``dtype`` and ``shape`` are the original's, empty for Python numbers.
    ``ratio`` is the largest quotient of the two results, 1.0 or more, and ``threshold`` the largest allowed; both are
    None for what is not judged by a ratio: numbers, results of the CPU, shapes that differ. ``flips_sign``: an element
    that is not small changed its sign, which has no ratio.
    """

    index: int | None
    is_consistent: bool
    dtype: str = ""
    shape: tuple[int, ...] = ()
    ratio: float | None = None
    threshold: float | None = None
    flips_sign: bool = False


def outputs_of(result: Any, index: int | None = None) -> Iterator[Output]:
    """Yield what is compared of a call's result, with its place among several: of values with indices the values."""
    if isinstance(result, tuple) and hasattr(result, "values") and hasattr(result, "indices"):
        yield index, result.values
    elif isinstance(result, dict):
        yield from outputs_of(list(result.values()), index)
    elif isinstance(result, (list, tuple)):
        for i, each in enumerate(result):
            yield from outputs_of(each, i if index is None else index)
    else:
        yield index, result


def deviations(
    perturbation: str, original: Sequence[Output], perturbed: Sequence[Output], *, is_gradient: bool = False
) -> list[Deviation]:
    """Judge what came of a call by what came of it with perturbed inputs, both as `outputs_of` gives them.

    The tensors of both are on one device. Integers, complex numbers and what is sparse are not compared, nor are
    tensors without elements.
    """
    first = next((output for _, output in original if isinstance(output, torch.Tensor)), None)
    threshold = 1.0 if perturbation == "no_change" else _threshold(first)
    if len(original) != len(perturbed):
        return [Deviation(None, is_consistent=False)]
    found = (
        _deviation(perturbation, index, before, after, threshold, is_gradient)
        for (index, before), (_, after) in zip(original, perturbed, strict=True)
    )
    return [deviation for deviation in found if deviation is not None]


def _deviation(
    perturbation: str, index: int | None, before: Any, after: Any, threshold: float, is_gradient: bool
) -> Deviation | None:
    if isinstance(before, (int, float)) and isinstance(after, (int, float)):
        return Deviation(index, _same_number(before, after))
    if not (isinstance(before, torch.Tensor) and isinstance(after, torch.Tensor) and _is_compared(before)):
        return None
    dtype, shape = str(before.dtype), tuple(before.shape)
    if before.shape != after.shape:
        return Deviation(index, False, dtype, shape)
    if perturbation == "to_cpu":
        return Deviation(index, is_like_on_cpu(before, after), dtype, shape)
    ratio = largest_ratio(before, after, tolerance(after.dtype, is_gradient=is_gradient))
    return Deviation(index, ratio is not None and ratio <= threshold, dtype, shape, ratio, threshold, ratio is None)


def tolerance(dtype: torch.dtype, *, is_gradient: bool = False) -> float:
    """Return the size below which elements are taken for equally small, by the dtype of the perturbed result."""
    return _BACKWARD_TOLERANCE if is_gradient else math.sqrt(NOISE.get(dtype, _NOISE_OF_OTHERS))


def largest_ratio(original: torch.Tensor, perturbed: torch.Tensor, tolerance: float) -> float | None:
    """Return the largest quotient of two results, whichever is larger, with sizes below the tolerance raised to it.

    A quotient that is NaN counts as 1. None where an element changes its sign and the product of its two values lies
    below -tolerance². The original is cast to the dtype of the perturbed result; the quotient is taken in float32, in
    float64 of that.

    Every chunk counts. In msprobe the last one decides for all, so that of tensors of 32 MiB and more only the end is
    judged.
    """
    wide = torch.float64 if perturbed.dtype is torch.float64 else torch.float32
    largest = 1.0
    originals = torch.split(original.detach().to(perturbed.dtype).flatten(), _CHUNK)
    for a, b in zip(originals, torch.split(perturbed.detach().flatten(), _CHUNK), strict=True):
        a, b = a.to(wide), b.to(wide)
        if (a * b < -(tolerance**2)).any():
            return None
        ratio = a.abs().clamp(min=tolerance) / b.abs().clamp(min=tolerance)
        ratio = ratio.masked_fill(ratio.isnan(), 1.0)
        least = float(ratio.min())
        largest = max(largest, float(ratio.max()), 1 / least if least else math.inf)
    return largest


def is_like_on_cpu(actual: torch.Tensor, reference: torch.Tensor) -> bool:
    """Tell whether a result is as precise as its dtype promises, by the CPU's; one with inf or nan judges nothing.

    Elements below 1 may differ absolutely, others relatively, by 2^-14 (float16 2^-11, bfloat16 2^-8), and all of them
    on average by 1e-4, with their signs.
    """
    limit = _CPU_TOLERANCES.get(actual.dtype, _CPU_TOLERANCE_OF_OTHERS)
    golden = reference.detach().double().cpu()
    if not golden.isfinite().all():
        return True
    found = actual.detach().double().cpu()
    found = found.masked_fill(~found.isfinite(), 1.0)
    difference = found - golden
    size = golden.abs()
    is_small = found.abs() < 1
    wrong = torch.where(is_small, difference.abs() > limit, difference.abs() > limit * size)
    bias = (difference / size.clamp(min=1)).mean().abs()
    return not wrong.any() and bool(bias <= _CPU_BIAS)


def _threshold(first: torch.Tensor | None) -> float:
    return _THRESHOLD_OF_OTHERS if first is None else _THRESHOLDS.get(first.dtype, _THRESHOLD_OF_OTHERS)


def _is_compared(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() and tensor.layout is torch.strided and tensor.numel() > 0


def _same_number(original: float, perturbed: float) -> bool:
    if isinstance(original, int) and isinstance(perturbed, int):
        return original == perturbed
    return math.isclose(original, perturbed)
