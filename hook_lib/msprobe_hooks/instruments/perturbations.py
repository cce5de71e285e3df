"""The perturbations of msprobe's free benchmark: the inputs of a call, changed by less than a result should notice.

A perturbation returns new arguments and leaves the given ones alone. Which tensor is changed, by how much and where
not, are msprobe's rules for PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

Arguments = tuple[tuple[Any, ...], dict[str, Any]]

#: How much noise a dtype gets; its root is also the size below which a result says nothing.
NOISE = {torch.bfloat16: 1e-4, torch.float16: 1e-6, torch.float32: 1e-8, torch.float64: 1e-16}

_BITS = {
    torch.bfloat16: torch.int16,
    torch.float16: torch.int16,
    torch.float32: torch.int32,
    torch.float64: torch.int64,
}
_NARROW = (torch.float16, torch.bfloat16)


class NotPerturbedError(Exception):
    """These arguments cannot take the perturbation; the text says why."""


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
    places = tensor.shape[:2]
    if tensor.numel() == 0 or places.numel() < 2:
        raise NotPerturbedError("too few elements to swap two")
    first, last = ((0,), (-1,)) if tensor.dim() == 1 else ((0, 0), (-1, -1))
    swapped = tensor.clone()
    swapped[first], swapped[last] = tensor[last], tensor[first]
    return swapped


def no_change(tensor: torch.Tensor) -> torch.Tensor:
    """Return x: whatever differs then, differs by itself."""
    return tensor


def _noise_for(tensor: torch.Tensor) -> float:
    noise = NOISE.get(tensor.dtype)
    if noise is None:
        raise NotPerturbedError(f"no noise is known for {tensor.dtype}")
    if tensor.numel() == 0:
        raise NotPerturbedError("the tensor to be perturbed is empty")
    if tensor.abs().max() < noise:
        raise NotPerturbedError("all elements are smaller than the noise")
    return noise


def _on_first_tensor(change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[..., Arguments]:
    """Return the perturbation that changes the first float tensor of the first positional argument that can hold one.

    That argument is a float tensor or any list, tuple or dict; tensors given by name are never changed.
    """

    def perturbed(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
        for position, argument in enumerate(args):
            if _is_float(argument) or isinstance(argument, (list, tuple, dict)):
                changed, found = _with_first_changed(change, argument)
                if not found:
                    break
                return (*args[:position], changed, *args[position + 1 :]), kwargs
        raise NotPerturbedError("no float tensor in the first positional argument that could hold one")

    return perturbed


def _with_first_changed(change: Callable[[torch.Tensor], torch.Tensor], tree: Any) -> tuple[Any, bool]:
    """Return the nesting with its first float tensor changed, and whether it has one."""
    if _is_float(tree):
        _require_elements(tree)
        return change(tree), True
    if isinstance(tree, dict):
        values, found = _with_first_changed(change, list(tree.values()))
        return dict(zip(tree, values, strict=True)), found
    if not isinstance(tree, (list, tuple)):
        return tree, False
    items = list(tree)
    for i, item in enumerate(items):
        items[i], found = _with_first_changed(change, item)
        if found:
            return _like(tree, items), True
    return tree, False


def _require_elements(tensor: torch.Tensor) -> None:
    """Raise NotPerturbedError for a tensor whose elements have no places of their own in memory."""
    if tensor.layout is not torch.strided or tensor.is_nested:
        raise NotPerturbedError("the tensor to be perturbed is sparse or nested")


def _on_all_tensors(change: Callable[[torch.Tensor], torch.Tensor], missing: str) -> Callable[..., Arguments]:
    """Return the perturbation that changes every tensor; ``missing`` is what a call lacks where none would change."""

    def perturbed(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
        changed_any = False

        def mapped(tree: Any) -> Any:
            nonlocal changed_any
            if isinstance(tree, torch.Tensor):
                changed = change(tree)
                changed_any |= changed is not tree
                return changed
            if isinstance(tree, dict):
                return {key: mapped(value) for key, value in tree.items()}
            return _like(tree, list(map(mapped, tree))) if type(tree) in (list, tuple) else tree

        arguments = mapped(args), mapped(kwargs)
        if not changed_any:
            raise NotPerturbedError(missing)
        return arguments

    return perturbed


def _widened(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.float() if tensor.dtype in _NARROW else tensor


def _on_cpu(tensor: torch.Tensor) -> torch.Tensor:
    return _widened(tensor.detach().cpu())


def _is_float(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point() and not value.is_meta


def _like(tree: Any, items: list[Any]) -> Any:
    return type(tree)(*items) if hasattr(tree, "_fields") else type(tree)(items)


_PERTURBATIONS: Mapping[str, Callable[..., Arguments]] = {
    "improve_precision": _on_all_tensors(_widened, "no float16 or bfloat16 tensor whose precision could be improved"),
    "add_noise": _on_first_tensor(add_noise),
    "bit_noise": _on_first_tensor(bit_noise),
    "change_value": _on_first_tensor(change_value),
    "no_change": _on_first_tensor(no_change),
    "to_cpu": _on_all_tensors(_on_cpu, "no tensor that the CPU could compute with"),
}
