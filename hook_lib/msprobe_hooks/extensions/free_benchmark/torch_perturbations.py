"""The perturbations of msprobe's free benchmark: the inputs of a call, changed by less than a result should notice.

A perturbation returns new arguments and leaves the given ones alone. Which tensor is changed, by how much and where
not, are msprobe's rules for PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from msprobe_hooks.extensions.free_benchmark.argument_changes import (
    NOTHING_NARROW,
    Arguments,
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
