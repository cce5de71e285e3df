"""The perturbations of msprobe's free benchmark, of inputs of PyTorch, and the ratio of two results.

A perturbation returns new arguments and leaves the given ones alone. Which tensor is changed, by how much and where
not, are msprobe's rules for PyTorch.

A call run on its own device is judged by the ratio of the two results, one run on the CPU in higher precision by
absolute and relative differences. Both rules are msprobe's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from msprobe_hooks.extensions.free_benchmark.argument_changes import (
    NOTHING_NARROW,
    Arguments,
    Judging,
    NotPerturbedError,
    noise_for,
    on_all_tensors,
    on_first_tensor,
    swapped_places,
)

_BITS = {
    torch.bfloat16: torch.int16,
    torch.float16: torch.int16,
    torch.float32: torch.int32,
    torch.float64: torch.int64,
}
_NARROW = (torch.float16, torch.bfloat16)

# msprobe's (free benchmark): what elements may differ by, and on average.
_CPU_TOLERANCES = {torch.float16: 2**-11, torch.bfloat16: 2**-8}
_CPU_TOLERANCE_OF_OTHERS = 2**-14
_CPU_BIAS = 1e-4

# Elements that are looked at at once: 16 MiB of float32. Which number this is changes no verdict.
_CHUNK = 2**22


@torch.no_grad()
def perturb(perturbation: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Arguments:
    """Return the arguments of a call, perturbed by the perturbation of that name, one of `names.PERTURBATIONS`.

    Raises NotPerturbedError, with the reason, where these arguments cannot take it.
    """
    return _PERTURBATIONS[perturbation](tuple(args), dict(kwargs))


def add_noise(tensor: torch.Tensor) -> torch.Tensor:
    """Return x + e where abs(x) > sqrt(e), else x; e is the noise of the dtype, and often too small to be seen."""
    noise = _noise_for(tensor)
    return torch.where(tensor.abs() > noise**0.5, tensor + noise, tensor)


def bit_noise(tensor: torch.Tensor) -> torch.Tensor:
    """Return x with its last bit flipped, but for zeros and subnormal numbers."""
    _noise_for(tensor)
    # Of a view that is conjugated or negated lazily, the memory holds other bits.
    tensor = tensor.resolve_conj().resolve_neg()
    flipped = tensor.abs() > torch.finfo(tensor.dtype).smallest_normal
    bits = _BITS[tensor.dtype]
    return (tensor.view(bits) ^ flipped.to(bits)).view(tensor.dtype)


def change_value(tensor: torch.Tensor) -> torch.Tensor:
    """Return x with its first and last elements swapped; with two dimensions or more, x[0][0] and x[-1][-1]."""
    first, last = swapped_places(tuple(tensor.shape))
    swapped = tensor.clone()
    swapped[first], swapped[last] = tensor[last], tensor[first]
    return swapped


def no_change(tensor: torch.Tensor) -> torch.Tensor:
    """Return x: whatever differs then, differs by itself."""
    return tensor


def _noise_for(tensor: torch.Tensor) -> float:
    return noise_for(tensor.dtype, lambda: tensor.abs().max().item() if tensor.numel() else None)


def _on_first_tensor(change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[..., Arguments]:
    def changed(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.layout is not torch.strided or tensor.is_nested:
            raise NotPerturbedError("the tensor to be perturbed is sparse or nested")
        return change(tensor)

    return on_first_tensor(changed, _is_float)


def _widened(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.float() if tensor.dtype in _NARROW else tensor


def _on_cpu(tensor: torch.Tensor) -> torch.Tensor:
    return _widened(tensor.detach().cpu())


def _is_float(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point() and not value.is_meta


_PERTURBATIONS: Mapping[str, Callable[..., Arguments]] = {
    "improve_precision": on_all_tensors(_widened, torch.Tensor, NOTHING_NARROW),
    "add_noise": _on_first_tensor(add_noise),
    "bit_noise": _on_first_tensor(bit_noise),
    "change_value": _on_first_tensor(change_value),
    "no_change": _on_first_tensor(no_change),
    "to_cpu": on_all_tensors(_on_cpu, torch.Tensor, "no tensor can be moved to the CPU"),
}


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
    found = actual.detach().double().cpu()
    found = found.masked_fill(~found.isfinite(), 1.0)
    difference = found - golden
    size = golden.abs()
    is_small = found.abs() < 1
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
