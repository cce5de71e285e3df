"""The elements of one tensor, taken part by part: memory does not grow with the tensor."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import torch

from msprobe_standards import chunks
from msprobe_standards.tensor_layouts import is_plain
from pytest_msprobe.extensions.show.model import Contents, Histogram, ShownTensor
from pytest_msprobe.extensions.show.open_named import Named

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

_BINS = 20


def look(named: Named, count: int) -> ShownTensor:
    """Return what a tensor holds, with its first ``count`` elements."""
    value, tensor = named.value, named.tensor
    problem = named.problem
    if tensor is not None and not is_plain(tensor):
        problem = problem or f"{tensor.layout} tensor, whose elements are not shown"
    return ShownTensor(
        named.name,
        value.dtype.removeprefix("torch."),
        value.shape,
        None if tensor is None or problem else contents_of(tensor, count),
        value.statistics if value.is_tensor else None,
        value.text,
        problem,
    )


def contents_of(tensor: torch.Tensor, count: int) -> Contents:
    """Return the statistics, the first ``count`` elements and the histogram of a plain CPU tensor."""
    tensor = tensor.detach().resolve_conj().resolve_neg()
    greatest, least, total, squares = -math.inf, math.inf, 0.0, 0.0
    finite_count = zeros = nan = inf = negative_inf = 0
    for part in _parts(tensor):
        finite = part[np.isfinite(part)]
        if finite.size < part.size:
            nan += int(np.isnan(part).sum())
            inf += int((part == math.inf).sum())
            negative_inf += int((part == -math.inf).sum())
        if finite.size:
            greatest, least = max(greatest, float(finite.max())), min(least, float(finite.min()))
            total += float(finite.sum())
            with np.errstate(over="ignore"):
                squares += float(np.dot(finite, finite))
            zeros += finite.size - int(np.count_nonzero(finite))
            finite_count += finite.size
    if not finite_count:
        return Contents(None, None, None, None, zeros, nan, inf, negative_inf, _first(tensor, count), None)
    return Contents(
        _exact(tensor, greatest, "max"),
        _exact(tensor, least, "min"),
        total / finite_count,
        math.sqrt(squares),
        zeros,
        nan,
        inf,
        negative_inf,
        _first(tensor, count),
        _histogram(tensor, least, greatest) if tensor.numel() > _BINS else None,
    )


def _exact(tensor: torch.Tensor, extreme: float, which: str) -> float | int:
    """Return an extreme of integers as it is: float64 does not hold all of 64 bits."""
    if tensor.is_floating_point() or tensor.is_complex():
        return extreme
    if tensor.dtype.itemsize < 8:
        return int(extreme)
    flat = tensor.reshape(-1).numpy()
    return int(flat.max() if which == "max" else flat.min())


def _histogram(tensor: torch.Tensor, least: float, greatest: float) -> Histogram:
    counts = np.zeros(_BINS, dtype=np.int64)
    # Halves do not overflow where the difference does; of subnormal numbers they would be lost.
    scale = 1.0 if math.isfinite(greatest - least) else 0.5
    span = greatest * scale - least * scale
    for part in _parts(tensor):
        finite = part[np.isfinite(part)]
        shares = (finite * scale - least * scale) / span if span else np.zeros(finite.size)
        places = (shares * _BINS).astype(np.int64)
        counts += np.bincount(np.minimum(places, _BINS - 1), minlength=_BINS)
    return Histogram(least, greatest, tuple(counts.tolist()))


def _parts(tensor: torch.Tensor) -> Iterator[Floats]:
    for _, part, _ in chunks(tensor, tensor):
        yield (part.abs() if part.is_complex() else part).double().reshape(-1).numpy()


def _first(tensor: torch.Tensor, count: int) -> tuple[str, ...]:
    return tuple(element_text(element) for element in _beginning(tensor, count))


def _beginning(tensor: torch.Tensor, count: int) -> Iterator[torch.Tensor]:
    for flat in range(min(count, tensor.numel())):
        yield tensor[np.unravel_index(flat, tuple(tensor.shape))] if tensor.dim() else tensor


def element_text(element: torch.Tensor) -> str:
    """Return one element as text."""
    value = element.item()
    return f"{value:.9g}" if isinstance(value, (float, complex)) else str(value)
