"""Statistics of many tensors at once, computed where the tensors are and fetched together.

On a CPU a large tensor is read part by part, so that no temporary outgrows the cache; on a device the norms of a list
are one multi-tensor reduction, and nothing is waited for before `fetch`.

    norm        sqrt(sum x²), in float64             mean  sum x / n, in float64
    min, max    in the tensor's dtype; NaN if any    rms   norm / sqrt(n)
    zeros       share of |x| < eps                   nans  number of NaN
    subnormals  share of 0 < |x| < the smallest normal number of the tensor's dtype
    id          the value of a tensor without dimensions, of any other NaN

Of complex numbers the absolute values are taken. A tensor that is empty, or whose values cannot be read, has NaN for
all of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TypeAlias

import torch
from torch import Tensor

from msprobe_hooks.torch.statistics import is_readable, local_part

#: A number, or where it is still on a device, a tensor without dimensions.
Value: TypeAlias = "float | Tensor"
Values: TypeAlias = tuple[Value, ...]

# Elements of a part. On a CPU its float64 copy is 512 KiB, which an allocator hands out again and again.
_PART = 1 << 16
_DEVICE_PART = 1 << 26


class Meter:
    """Computes the named statistics of tensors; ``eps`` is the size below which an element counts as zero."""

    def __init__(self, statistics: Sequence[str], eps: float) -> None:
        self.statistics = tuple(statistics)
        self._eps = eps
        self._wanted = frozenset(statistics)
        self._unknown: Values = (math.nan,) * len(self.statistics)

    def measure(self, tensors: Sequence[Tensor]) -> list[Values]:
        """Return the statistics of each tensor. The caller has turned gradients and overrides off."""
        local = [local_part(tensor) for tensor in tensors]
        norms = {} if self._wanted.isdisjoint(("norm", "rms")) else _fused_norms(local)
        return [self._statistics(tensor, norms.get(place)) for place, tensor in enumerate(local)]

    def _statistics(self, tensor: Tensor, norm: Value | None) -> Values:
        if norm is not None and self._wanted == {"norm"}:
            return (norm,) * len(self.statistics)
        if not is_readable(tensor) or tensor.numel() == 0 or _is_captured(tensor):
            return self._unknown
        found = _reduced(tensor, self._wanted, self._eps, norm)
        return tuple(found[name] for name in self.statistics)


def fetch(rows: Sequence[Values]) -> list[tuple[float, ...]]:
    """Bring statistics to the host, with one transfer per device and dtype."""
    groups: dict[tuple[torch.device, torch.dtype], list[tuple[list[float], int, Tensor]]] = {}
    numbers: list[list[float]] = []
    for row in rows:
        fetched = [math.nan if isinstance(value, Tensor) else value for value in row]
        numbers.append(fetched)
        for place, value in enumerate(row):
            if isinstance(value, Tensor):
                groups.setdefault((value.device, value.dtype), []).append((fetched, place, value))
    for group in groups.values():
        values = torch.stack([value for *_, value in group]).tolist()
        for (fetched, place, _), number in zip(group, values, strict=True):
            fetched[place] = float(number)
    return [tuple(row) for row in numbers]


def _fused_norms(tensors: Sequence[Tensor]) -> dict[int, Value]:
    """Return the norms that multi-tensor reductions give, by place in the list."""
    groups: dict[tuple[torch.device, torch.dtype], list[int]] = {}
    for place, tensor in enumerate(tensors):
        if _can_be_fused(tensor):
            groups.setdefault((tensor.device, tensor.dtype), []).append(place)
    norms: dict[int, Value] = {}
    for places in groups.values():
        found = torch._foreach_norm([tensors[place] for place in places], 2, torch.float64)
        norms.update(zip(places, map(_number, found), strict=True))
    return norms


def _can_be_fused(tensor: Tensor) -> bool:
    if not tensor.is_floating_point() or tensor.dtype.itemsize == 1 or not is_readable(tensor):
        return False
    # On a CPU the reduction casts the whole tensor first.
    return not _is_captured(tensor) and 0 < tensor.numel() <= (_PART if tensor.is_cpu else math.inf)


def _is_captured(tensor: Tensor) -> bool:
    """Tell whether what runs now would become part of a CUDA graph."""
    return tensor.is_cuda and torch.cuda.is_current_stream_capturing()


def _reduced(tensor: Tensor, wanted: frozenset[str], eps: float, norm: Value | None) -> dict[str, Value]:
    flat = _flat(tensor)
    count = flat.numel()
    parts = torch.split(flat, _PART if flat.is_cpu else _DEVICE_PART)
    values: dict[str, Value] = {"id": math.nan if tensor.dim() else _number(flat[0].clone())}
    if not wanted.isdisjoint(("min", "max", "nans")):
        least, most = map(_number, torch.aminmax(flat))
        values["min"], values["max"] = least, most
        has_none = isinstance(least, float) and not math.isnan(least)
        values["nans"] = 0.0 if has_none else _total(part.isnan().sum() for part in parts)
    needs_norm = norm is None and not wanted.isdisjoint(("norm", "rms"))
    if needs_norm or "mean" in wanted:
        squares, total = _sums(parts, needs_norm, "mean" in wanted)
        norm = squares**0.5 if needs_norm else norm
        values["mean"] = total / count
    if norm is not None:
        values["norm"], values["rms"] = norm, norm / math.sqrt(count)
    if "zeros" in wanted:
        values["zeros"] = _total(_below(part, eps) for part in parts) / count
    if "subnormals" in wanted:
        values["subnormals"] = _total(_subnormal(part, tensor.dtype) for part in parts) / count
    return values


def _flat(tensor: Tensor) -> Tensor:
    """Return the elements in one dimension, in any order; copied only where they do not lie side by side."""
    if tensor.is_complex():
        tensor = tensor.abs()
    elif tensor.is_floating_point() and tensor.dtype.itemsize == 1:
        tensor = tensor.float()
    elif not tensor.is_floating_point():
        tensor = tensor.double()
    if not tensor.is_contiguous() and _is_dense(tensor):
        return tensor.as_strided((tensor.numel(),), (1,))
    return tensor.reshape(-1)


def _is_dense(tensor: Tensor) -> bool:
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1 and stride != expected:
            return False
        expected *= size
    return True


def _sums(parts: Sequence[Tensor], has_squares: bool, has_sum: bool) -> tuple[Value, Value]:
    """Return the sum of the squares and the sum, each 0 where it is not asked for, from one copy in float64."""
    squares: Value = 0.0
    total: Value = 0.0
    for part in parts:
        wide = part.double()
        if has_squares:
            squares = squares + _number(torch.dot(wide, wide))
        if has_sum:
            total = total + _number(wide.sum())
    return squares, total


def _below(part: Tensor, limit: float) -> Tensor:
    # As numbers, in place: a CPU takes twice as long to count booleans. A limit would round to 0 in half precision.
    magnitudes = part.abs() if part.dtype.itemsize >= 4 else part.float().abs_()
    return magnitudes.lt_(limit).sum(dtype=torch.float64 if not part.is_cpu else None)


def _subnormal(part: Tensor, dtype: torch.dtype) -> Tensor:
    if not dtype.is_floating_point:
        return part.new_zeros((), dtype=torch.float32)
    return _below(part, torch.finfo(dtype).smallest_normal) - (part == 0).sum()


def _total(parts: Iterable[Tensor]) -> Value:
    total: Value = 0.0
    for part in parts:
        total = total + _number(part)
    return total


def _number(value: Tensor) -> Value:
    return float(value.item()) if value.is_cpu else value
