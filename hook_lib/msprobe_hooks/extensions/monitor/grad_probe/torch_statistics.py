"""Numbers and signs of many gradients at once: everything is computed where they are, and fetched together.

Half precision is accumulated in float32 and float64 stays float64. The caller has turned gradients and overrides off.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from msprobe_hooks.extensions.monitor.grad_probe.sign_maps import SignMap
from msprobe_hooks.extensions.monitor.grad_probe.writer import interval_shares
from msprobe_hooks.torch.arrays import as_bytes
from msprobe_hooks.torch.statistics import is_readable, local_part

_COMPUTED = frozenset({torch.float16, torch.bfloat16, torch.float32, torch.float64})

# Sign maps that cross to the host at once: 64 MiB.
_FETCHED_ELEMENTS = 1 << 26


@dataclass(frozen=True, slots=True)
class GradientNumbers:
    """Maximum, minimum and 2-norm of a gradient; NaN, NaN and 0 of one without elements.

    ``shares`` are the fractions of elements in ``(-inf, b0]``, ``(b0, b1]``, ..., ``(bn, inf)``, and of those that are
    0. A NaN counts in the last interval, as msprobe counts it.
    """

    max: float = math.nan
    min: float = math.nan
    norm: float = 0.0
    shares: tuple[float, ...] = ()


def dense(gradient: Tensor) -> Tensor | None:
    """Return what this process holds of a gradient, dense and of a float dtype; None where it has no such values."""
    part = local_part(gradient).detach()
    if part.layout is not torch.strided and not part.is_meta:
        part = part.to_dense()
    if not is_readable(part) or not part.is_floating_point():
        return None
    return part if part.dtype in _COMPUTED else part.float()


def measure(gradients: Sequence[Tensor], bounds: Sequence[float] | None) -> list[GradientNumbers]:
    """Return the numbers of gradients that are ``dense``; without ``shares`` where there are no bounds."""
    numbers = [GradientNumbers() for _ in gradients]
    groups: dict[tuple[torch.device, torch.dtype], list[int]] = {}
    for place, gradient in enumerate(gradients):
        groups.setdefault((gradient.device, gradient.dtype), []).append(place)
    for (_, dtype), places in groups.items():
        group = [gradients[place] for place in places]
        wide = torch.float64 if dtype is torch.float64 else torch.float32
        shares = _shares(group, bounds, wide) if bounds is not None else [()] * len(group)
        for place, of_one, fractions in zip(places, _extrema_and_norms(group, wide), shares, strict=True):
            numbers[place] = GradientNumbers(*of_one, fractions)
    return numbers


def _extrema_and_norms(group: list[Tensor], wide: torch.dtype) -> Iterator[tuple[float, float, float]]:
    """Yield three numbers for each of some gradients of one device and dtype."""
    nan = torch.full((1,), math.nan, dtype=wide, device=group[0].device)
    filled = [gradient if gradient.numel() else nan.to(gradient.dtype) for gradient in group]
    extrema = torch.stack([*map(torch.amax, filled), *map(torch.amin, filled)]).to(wide)
    numbers = torch.cat([extrema, torch.stack(_norms(group, wide))]).tolist()
    count = len(group)
    return zip(numbers[:count], numbers[count : 2 * count], numbers[2 * count :], strict=True)


def _norms(group: list[Tensor], wide: torch.dtype) -> list[Tensor]:
    if group[0].dtype is wide:
        return list(torch._foreach_norm(group))
    # Its accumulation in another dtype came with torch 2.4.
    return [torch.linalg.vector_norm(gradient, dtype=wide) for gradient in group]


def _shares(group: list[Tensor], bounds: Sequence[float], wide: torch.dtype) -> Iterator[tuple[float, ...]]:
    counts = [count for gradient in group for count in _counts(gradient.to(wide), bounds)]
    rows = torch.stack(counts).reshape(len(group), -1).tolist()
    for gradient, (zeros, *up_to) in zip(group, rows, strict=True):
        yield interval_shares(up_to, zeros, gradient.numel())


def _counts(gradient: Tensor, bounds: Sequence[float]) -> Iterator[Tensor]:
    yield torch.count_nonzero(gradient == 0)
    for bound in bounds:
        yield torch.count_nonzero(gradient <= float(bound))


def checksum(gradient: Tensor) -> str:
    """Return the MD5 of the elements as float32, in hexadecimal."""
    return hashlib.md5(as_bytes(gradient.float().cpu().contiguous()).data, usedforsecurity=False).hexdigest()


def positive(gradients: Iterable[Tensor]) -> Iterator[SignMap]:
    """Yield which elements of each gradient are greater than 0; from a device, many with one transfer."""
    batch: list[Tensor] = []
    elements = 0
    for gradient in gradients:
        if batch and (
            gradient.is_cpu or gradient.device != batch[0].device or elements + gradient.numel() > _FETCHED_ELEMENTS
        ):
            yield from fetch_signs(batch)
            batch, elements = [], 0
        batch.append(gradient)
        elements += gradient.numel()
    yield from fetch_signs(batch)


def fetch_signs(gradients: list[Tensor]) -> Iterator[SignMap]:
    """Yield the sign maps of gradients on one device, which cross to the host together."""
    if len(gradients) == 1:
        yield (gradients[0] > 0).cpu().numpy()
    elif gradients:
        together = torch.cat([(gradient > 0).flatten() for gradient in gradients]).cpu().numpy()
        ends = np.cumsum([gradient.numel() for gradient in gradients])[:-1]
        for gradient, signs in zip(gradients, np.split(together, ends), strict=True):
            yield signs.reshape(gradient.shape)
