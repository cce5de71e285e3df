"""Statistics of many tensors at once, computed where they are and fetched together; small ones on a CPU end to end.

On a device the norms of a list are one multi-tensor reduction, and nothing is waited for before `Meter.fetch`.

    norm        sqrt(sum x²)                         mean  sum x / n
    min, max    in the tensor's dtype; NaN if any    rms   norm / sqrt(n)
    zeros       share of |x| < eps                   nans  number of NaN
    subnormals  share of 0 < |x| < the smallest normal number of the tensor's dtype
    id          the value of a tensor without dimensions, of any other NaN

Sums are in float64; on a CPU those of float32 and narrower numbers are in float32 over rows of 256 elements and in
float64 over rows, three to twenty times as fast. Norms are then off by 1e-10 to 1e-7, by 4e-7 where all elements are
alike. Where float32 cannot hold a square, float64 is taken for all. Of complex numbers the absolute values are taken.
A tensor that is empty, or whose values cannot be read, has NaN for all statistics.

Small tensors on a CPU are copied when measured, and reduced in float64 when fetched, as at the end of a step.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from msprobe_hooks.extensions.monitor.series.tables import BINS, RANGE
from msprobe_hooks.torch.statistics import is_readable, local_part

#: A number, or where it is still on a device, a tensor without dimensions.
Value: TypeAlias = "float | Tensor"
#: Those of a tensor; of a small one on a CPU what they will be reduced from.
Values: TypeAlias = "tuple[Value, ...] | _Copied"

#: Returns the elements of tensors end to end, of one tensor without a copy.
flatten = torch._C._nn.flatten_dense_tensors

# Elements of a part, of which there are temporary copies; on a CPU they are made in one place that stays in the cache.
_PART = 1 << 17
_DEVICE_PART = 1 << 26

# The fused norms of torch 2.3 are in the tensors' dtype.
_FUSES_FLOAT64 = "dtype" in str(torch.ops.aten._foreach_norm.Scalar._schema)

#: On a CPU, up to how many elements tensors are measured together, in float64.
SMALL = 1 << 13
_ROW = 256

# Root mean squares that say that no square was lost: elements below 1e-4 of them count for nothing.
_LEAST_RMS = 1e-15

#: Elements that are copied at most and reduced at once: 1 MiB in float64, which a core's own cache holds.
TOGETHER = _PART


class Meter:
    """Computes the named statistics of tensors; ``eps`` is the size below which an element counts as zero."""

    def __init__(self, statistics: Sequence[str], eps: float) -> None:
        self.statistics = tuple(statistics)
        self._eps = eps
        self._wanted = frozenset(statistics)
        self._unknown = (math.nan,) * len(self.statistics)
        self._small: dict[torch.dtype, _SmallTensors] = {}

    def measure(self, tensors: Sequence[Tensor]) -> list[Values]:
        """Return the statistics of each tensor. The caller has turned gradients and overrides off."""
        rows: list[Values] = []
        small: dict[torch.dtype, list[tuple[Tensor, _Copied]]] = {}
        others: list[tuple[int, Tensor]] = []
        for tensor in map(local_part, tensors):
            count = tensor.numel()
            if not count or not is_readable(tensor) or _is_captured(tensor):
                rows.append(self._unknown)
            elif count <= SMALL and tensor.is_cpu:
                rows.append(copied := _Copied(tensor, count))
                small.setdefault(tensor.dtype, []).append((tensor, copied))
            else:
                others.append((len(rows), tensor))
                rows.append(self._unknown)
        for dtype, group in small.items():
            waiting = self._small.get(dtype)
            if waiting is None:
                waiting = self._small[dtype] = _SmallTensors(dtype, self.statistics, self._eps)
            waiting.copy(group)
        if others:
            norms = {} if self._wanted.isdisjoint(("norm", "rms")) else _fused_norms(others)
            for place, tensor in others:
                rows[place] = self._statistics(tensor, norms.get(place))
        return rows

    def fetch(self, rows: Sequence[Values]) -> list[tuple[float, ...]]:
        """Fetch statistics to the host, with one transfer per device and dtype; what was copied is reduced first."""
        for small in self._small.values():
            small.reduce()
        groups: dict[tuple[torch.device, torch.dtype], list[tuple[list[Value], int, Tensor]]] = {}
        numbers: list[Sequence[Any]] = [row if isinstance(row, tuple) else row.values or self._unknown for row in rows]
        for number, row in enumerate(rows):
            if not isinstance(row, tuple):
                continue
            waiting = [(place, value) for place, value in enumerate(row) if isinstance(value, Tensor)]
            if waiting:
                numbers[number] = fetched = list(row)
                for place, value in waiting:
                    groups.setdefault((value.device, value.dtype), []).append((fetched, place, value))
        for group in groups.values():
            values = torch.stack([value for *_, value in group]).tolist()
            for (fetched, place, _), number in zip(group, values, strict=True):
                fetched[place] = float(number)
        return [tuple(row) for row in numbers]

    def distribution(self, tensor: Tensor) -> Tensor:
        """Return how many elements are in each bin of a heat map."""
        return tensor.float().histc(BINS, *RANGE)

    def _statistics(self, tensor: Tensor, norm: Value | None) -> tuple[Value, ...]:
        if norm is not None and self._wanted == {"norm"}:
            return (norm,) * len(self.statistics)
        reduced = _reduced(tensor, self._wanted, self._eps, norm)
        return tuple(reduced[name] for name in self.statistics)


def _is_captured(tensor: Tensor) -> bool:
    """Return whether what runs now would become part of a CUDA graph."""
    return tensor.is_cuda and torch.cuda.is_current_stream_capturing()


def _fused_norms(tensors: Iterable[tuple[int, Tensor]]) -> dict[int, Value]:
    """Return the norms that multi-tensor reductions of a device give, by the number of the tensor."""
    groups: dict[tuple[torch.device, torch.dtype], list[tuple[int, Tensor]]] = {}
    for number, tensor in tensors:
        if not tensor.is_cpu and tensor.is_floating_point() and tensor.dtype.itemsize > 1:
            groups.setdefault((tensor.device, tensor.dtype), []).append((number, tensor))
    norms: dict[int, Value] = {}
    for group in groups.values():
        norms_of_group = _norms_in_float64([tensor for _, tensor in group])
        norms.update(zip((number for number, _ in group), norms_of_group, strict=True))
    return norms


def _norms_in_float64(tensors: list[Tensor]) -> Iterable[Tensor]:
    if _FUSES_FLOAT64:
        return torch._foreach_norm(tensors, 2, torch.float64)
    return [torch.linalg.vector_norm(tensor, dtype=torch.float64) for tensor in tensors]


def _reduced(tensor: Tensor, names: frozenset[str], eps: float, norm: Value | None) -> dict[str, Value]:
    flat = _flat(tensor)
    count = flat.numel()
    values: dict[str, Value] = {}
    if "id" in names:
        values["id"] = math.nan if tensor.dim() else _number(flat[0].clone())
    if norm is None and not names.isdisjoint(("norm", "rms")):
        norm = _norm(flat)
    if norm is not None:
        values["norm"], values["rms"] = norm, norm / math.sqrt(count)
    if not names.isdisjoint(("min", "max", "nans")):
        least, most = map(_number, torch.aminmax(flat))
        values["min"], values["max"] = least, most
        has_none = isinstance(least, float) and not math.isnan(least)
        values["nans"] = 0.0 if has_none else total_of(part.isnan().sum() for part in parts_of(flat))
    if "mean" in names:
        values["mean"] = _sum(flat) / count
    if "zeros" in names:
        values["zeros"] = total_of(_below(part, eps) for part in parts_of(flat)) / count
    if "subnormals" in names:
        values["subnormals"] = total_of(_subnormal(part, tensor.dtype) for part in parts_of(flat)) / count
    return values


def parts_of(flat: Tensor) -> Sequence[Tensor]:
    """Return the parts of a tensor of one dimension of which temporary copies may be made."""
    size, count = _PART if flat.is_cpu else _DEVICE_PART, flat.numel()
    return (flat,) if count <= size else [flat[start : start + size] for start in range(0, count, size)]


class _Scratch(threading.local):
    """Memory of a thread for temporary copies: pages that are new at each copy cost more than what is computed."""

    def __init__(self) -> None:
        self._kept: dict[tuple[torch.dtype, int], Tensor] = {}

    def __call__(self, part: Tensor, dtype: torch.dtype, number: int = 0) -> Tensor:
        """Return room for a part; what has another number is other room."""
        if not part.is_cpu:
            return torch.empty_like(part, dtype=dtype)
        buffer = self._kept.get((dtype, number))
        if buffer is None:
            # What inference mode makes could not be written to outside of it.
            with torch.inference_mode(False):
                buffer = self._kept[dtype, number] = torch.empty(_PART, dtype=dtype, device="cpu")
        return buffer[: part.numel()]


scratch = _Scratch()


def _flat(tensor: Tensor) -> Tensor:
    """Return the elements in one dimension, in any order; copied only where they do not lie side by side."""
    if tensor.dtype is torch.float32 and tensor.is_contiguous():
        return tensor.view(-1)
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


def _norm(flat: Tensor) -> Value:
    if _is_narrow(flat):
        rows, rest = _rows(flat)
        norm = _length(torch.linalg.vector_norm(rows, dim=1, dtype=torch.float32))
        if rest is not None:
            norm = math.hypot(norm, _length(rest))
        if _LEAST_RMS * math.sqrt(flat.numel()) <= norm < math.inf:
            return norm
    wide = (scratch(part, torch.float64).copy_(part) for part in parts_of(flat))
    return total_of(torch.dot(part, part) for part in wide) ** 0.5


def _length(few: Tensor) -> float:
    wide = few.double().numpy()
    return math.sqrt(np.dot(wide, wide))


def _sum(flat: Tensor) -> Value:
    if _is_narrow(flat):
        rows, rest = _rows(flat)
        total: float = rows.sum(1, dtype=torch.float32).double().sum().item()
        if rest is not None:
            total += rest.double().sum().item()
        if math.isfinite(total):
            return total
    return total_of(part.sum(dtype=torch.float64) for part in parts_of(flat))


def _is_narrow(flat: Tensor) -> bool:
    return flat.is_cpu and flat.dtype.itemsize <= 4


def _rows(flat: Tensor) -> tuple[Tensor, Tensor | None]:
    """Return rows of elements, and what is left over."""
    count = flat.numel()
    if count % _ROW == 0:
        return flat.view(-1, _ROW), None
    whole = count - count % _ROW
    return flat[:whole].view(-1, _ROW), flat[whole:]


def _below(part: Tensor, limit: float) -> Tensor:
    # As numbers, in place: a CPU takes twice as long to count booleans. In half precision a limit would round to 0.
    wide = torch.float64 if part.dtype is torch.float64 else torch.float32
    room = scratch(part, wide)
    sizes = torch.abs(part, out=room) if part.dtype is wide else room.copy_(part).abs_()
    return sizes.lt_(limit).sum()


def _subnormal(part: Tensor, dtype: torch.dtype) -> Tensor:
    if not dtype.is_floating_point:
        return part.new_zeros((), dtype=torch.float32)
    below = _below(part, torch.finfo(dtype).smallest_normal)
    return below - scratch(part, part.dtype, 1).copy_(part).eq_(0).sum(dtype=torch.float32)


def total_of(parts: Iterable[Tensor]) -> Value:
    """Return the sum of tensors without dimensions."""
    total: Value = 0.0
    for part in parts:
        total = total + _number(part)
    return total


def _number(value: Tensor) -> Value:
    return float(value.item()) if value.is_cpu else value


class _Copied:
    """The statistics of a tensor whose elements were copied; ``values`` is None until they are reduced."""

    __slots__ = ("count", "has_dimensions", "values")

    def __init__(self, tensor: Tensor, count: int) -> None:
        self.count = count
        self.has_dimensions = tensor.dim() > 0
        self.values: tuple[float, ...] | None = None


class _SmallTensors:
    """Copies of small tensors of one dtype, of which the named statistics are wanted.

    ``eps`` is the size below which an element counts as zero. Threads of a training may measure at once.
    After tensors of 2 and 3 elements, which came together, and one of 4::

        _elements  [a a b b b,  c c c c]     _count  9
        _copied    [a, b,       c]           each gets its ``values`` when all are reduced
    """

    def __init__(self, dtype: torch.dtype, statistics: Sequence[str], eps: float) -> None:
        self._dtype, self._statistics, self._eps = dtype, statistics, eps
        self._lock = threading.Lock()
        self._elements: list[Tensor] = []
        self._copied: list[_Copied] = []
        self._count = 0

    def copy(self, tensors: Sequence[tuple[Tensor, _Copied]]) -> None:
        """Copy the elements of tensors, none of which is empty."""
        # Of one tensor the function returns the elements themselves.
        elements = tensors[0][0].clone() if len(tensors) == 1 else flatten([one for one, _ in tensors])
        count = elements.numel()
        with self._lock:
            if self._count + count > TOGETHER:
                self._reduce()
            self._elements.append(elements)
            self._copied += [copied for _, copied in tensors]
            self._count += count

    def reduce(self) -> None:
        """Compute the statistics of what was copied since, and drop the copies."""
        with self._lock:
            self._reduce()

    def _reduce(self) -> None:
        if not self._copied:
            return
        elements = flatten(self._elements)
        elements = elements.abs() if elements.is_complex() else elements
        count = elements.numel()
        # One call may have brought more at once than there is room for.
        rooms = torch.empty(2, count, dtype=torch.float64) if count > TOGETHER else None
        values, room = (scratch(elements, torch.float64, i) if rooms is None else rooms[i] for i in (0, 1))
        # In place of the elements where nothing else is computed of them.
        room = values if self._statistics in (("norm",), ("rms",)) else room
        laid = _Laid(self._dtype, self._copied, values.copy_(elements).numpy(), room.numpy(), self._eps)
        with np.errstate(all="ignore"):
            columns = [_COLUMNS[name](laid).tolist() for name in self._statistics]
        for copied, row in zip(self._copied, zip(*columns, strict=True), strict=True):
            copied.values = row
        self._elements, self._copied, self._count = [], [], 0


class _Laid:
    """Elements of tensors end to end, in float64; each method gives one statistic of every tensor."""

    def __init__(
        self,
        dtype: torch.dtype,
        copied: Sequence[_Copied],
        values: NDArray[np.float64],
        room: NDArray[np.float64],
        eps: float,
    ) -> None:
        """``room`` is for as many numbers as there are elements, and holds anything."""
        self._dtype, self._copied = dtype, copied
        self._values, self._room = values, room
        counts = np.array([one.count for one in copied], np.int64)
        self._counts = counts.astype(np.float64)
        self._starts = np.cumsum(counts) - counts
        self._eps = eps

    def norm(self) -> NDArray[np.float64]:
        return np.sqrt(self._sums(np.multiply(self._values, self._values, out=self._room)))

    def rms(self) -> NDArray[np.float64]:
        return self.norm() / np.sqrt(self._counts)

    def min(self) -> NDArray[np.float64]:
        return np.minimum.reduceat(self._values, self._starts)

    def max(self) -> NDArray[np.float64]:
        return np.maximum.reduceat(self._values, self._starts)

    def mean(self) -> NDArray[np.float64]:
        return self._sums(self._values) / self._counts

    def zeros(self) -> NDArray[np.float64]:
        # As torch compares: with the limit in float32, unless the elements are wider.
        limit = self._eps if self._dtype.itemsize > 4 else float(np.float32(self._eps))
        return self._sums(np.abs(self._values, out=self._room) < limit) / self._counts

    def nans(self) -> NDArray[np.float64]:
        return self._sums(np.isnan(self._values))

    def subnormals(self) -> NDArray[np.float64]:
        least = torch.finfo(self._dtype).smallest_normal if self._dtype.is_floating_point else 0.0
        sizes = np.abs(self._values, out=self._room)
        return self._sums((sizes > 0) & (sizes < least)) / self._counts

    def id(self) -> NDArray[np.float64]:
        has_dimensions = np.array([one.has_dimensions for one in self._copied])
        return np.where(has_dimensions, math.nan, self._values[self._starts])

    def _sums(self, terms: NDArray[np.float64] | NDArray[np.bool_]) -> NDArray[np.float64]:
        return np.add.reduceat(terms, self._starts, dtype=np.float64)


_COLUMNS: Mapping[str, Callable[[_Laid], NDArray[np.float64]]] = {
    "norm": _Laid.norm,
    "min": _Laid.min,
    "max": _Laid.max,
    "zeros": _Laid.zeros,
    "nans": _Laid.nans,
    "id": _Laid.id,
    "mean": _Laid.mean,
    "rms": _Laid.rms,
    "subnormals": _Laid.subnormals,
}
