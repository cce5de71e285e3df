"""The ratio of two results of PyTorch, and the CPU's rule: what the free benchmark judges by.

A call run on its own device is judged by the ratio of the two results, one run on the CPU in higher precision by
absolute and relative differences. Both rules are msprobe's.
"""

from __future__ import annotations

import math

import torch

from msprobe_hooks.extensions.free_benchmark.argument_changes import Judging

# msprobe's (free benchmark): what elements may differ by, and on average.
_CPU_TOLERANCES = {torch.float16: 2**-11, torch.bfloat16: 2**-8}
_CPU_TOLERANCE_OF_OTHERS = 2**-14
_CPU_BIAS = 1e-4

# Elements that are looked at at once: 16 MiB of float32. Which number this is changes no verdict.
_CHUNK = 2**22


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
    """Return whether a result is as precise as its dtype promises, by the CPU's; one with inf or nan judges nothing.

    Elements below 1 may differ absolutely, others relatively, by 2^-14 (float16 2^-11, bfloat16 2^-8), and all of them
    on average by 1e-4, with their signs.
    """
    limit = _CPU_TOLERANCES.get(actual.dtype, _CPU_TOLERANCE_OF_OTHERS)
    golden = reference.detach().double().cpu()
    if not golden.isfinite().all():
        return True
    values = actual.detach().double().cpu()
    values = values.masked_fill(~values.isfinite(), 1.0)
    difference = values - golden
    size = golden.abs()
    is_small = values.abs() < 1
    wrong = torch.where(is_small, difference.abs() > limit, difference.abs() > limit * size)
    bias = (difference / size.clamp(min=1)).mean().abs()
    return not wrong.any() and bool(bias <= _CPU_BIAS)


class TorchJudging(Judging):
    """Judges tensors of PyTorch."""

    tensor_class = torch.Tensor
    largest_ratio = staticmethod(largest_ratio)

    def is_compared(self, tensor: torch.Tensor) -> bool:
        """Return whether a tensor is dense, of real numbers and not empty."""
        return tensor.is_floating_point() and tensor.layout is torch.strided and tensor.numel() > 0

    def is_like(self, perturbation: str, original: torch.Tensor, perturbed: torch.Tensor) -> bool | None:
        """Return by the CPU's rule whether two results are alike; None where the second is not a result of the CPU."""
        return is_like_on_cpu(original, perturbed) if perturbation == "to_cpu" else None


#: Judges what came of a call by what came of it with perturbed inputs.
deviations = TorchJudging().deviations
