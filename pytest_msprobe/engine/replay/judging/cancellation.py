"""Gradients that are nothing but rounding: terms that cancel to zero, such as softmax's for equal gradients."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch

# Sums of a few thousand terms round to this many unit roundoffs of their largest term. Half precision is summed in a
# wider dtype, so that only the terms and the result are rounded to it. See docs/standards-reference.md, "Gradients that
# are only rounding".
_ROUNDINGS = 64.0
_HALF_ROUNDINGS = 4.0


def cancelled_gradients(golden: Mapping[str, torch.Tensor], grad_outputs: Iterable[torch.Tensor]) -> dict[str, float]:
    """Return the paths of golden gradients that are rounding alone, each with the greatest gradient of an output.

    Such a gradient is, throughout, below some unit roundoffs of its own dtype times that gradient, so that nothing is
    known of it but that it is zero: no error relative to it has a meaning.
    """
    scale = max(map(_greatest, grad_outputs), default=0.0)
    return {
        path: scale
        for path, gradient in golden.items()
        if gradient.is_floating_point() and gradient.numel() and 0 <= _greatest(gradient) <= _bound(gradient, scale)
    }


def without_rounding(gradients: Mapping[str, torch.Tensor], paths: Mapping[str, float]) -> dict[str, torch.Tensor]:
    """Return gradients with zeros at these paths where an element is no more than rounding in its own dtype."""
    return {
        path: _without(gradient, _bound(gradient, paths[path])) if path in paths else gradient
        for path, gradient in gradients.items()
    }


def _without(gradient: torch.Tensor, bound: float) -> torch.Tensor:
    wide = _widened(gradient)
    return wide.masked_fill(wide.abs() <= bound, 0.0).to(gradient.dtype)


def _greatest(tensor: torch.Tensor) -> float:
    """Return the greatest magnitude; NaN where there is one."""
    if not tensor.numel():
        return 0.0
    if tensor.is_complex():
        return float(tensor.abs().max())
    # Without a copy of all magnitudes, which takes ten times as long.
    low, high = _widened(tensor).aminmax()
    return max(-low.item(), high.item())


def _widened(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor with extrema and magnitudes, which torch has not for float8 and sparse ones."""
    tensor = tensor.to_dense() if tensor.is_sparse else tensor
    return tensor.float() if tensor.dtype.itemsize == 1 else tensor


def _bound(gradient: torch.Tensor, scale: float) -> float:
    roundings = _HALF_ROUNDINGS if gradient.dtype.itemsize < 4 else _ROUNDINGS
    return roundings * torch.finfo(gradient.dtype).eps / 2 * scale
