"""Max, Min, Mean and Norm of a tensor, exact for its dtype.

What is computed, and in which precision:

* floating point: extrema in the tensor's own dtype; sum and 2-norm accumulated in float32 for types narrower than that,
  so that a norm does not overflow in half precision; float64 stays float64; of large tensors on a CPU by blocks
* integers: exact extrema as integers; mean and norm in float64
* bool: any and all; complex: extrema and mean of the absolute value
* float8 and the like are widened to float32 first, which is exact
* one value: that value four times; no values, or none that can be read (meta, fake): nothing
* where a sum or a square overflows though every value is finite, as under a mask of the least float32, both are taken
  again in float64, those of float64 scaled to at most 1 (on a CPU; on a device the values are gone by then)
* an expanded tensor is read once: its elements are as many as its strides reach
* what lies apart in memory, such as a part of a split, is put together for its norm on a CPU, which is then as exact as
  any other's
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from ctypes import c_float
from typing import Final, TypeAlias

import numpy as np
import torch
from torch import Tensor

from msprobe_hooks.recording.tensor_entry import Number, Statistics
from msprobe_hooks.torch.tensor_memory import is_dense, is_expanded, without_repeats

#: Elements of a tensor that is reduced by blocks. Up to there caches keep it from one reduction to the next.
LARGE: Final = 1 << 20

# 1 MiB of float32, which is what a core's own cache holds.
_BLOCK: Final = 1 << 18

_HALF = frozenset({torch.float16, torch.bfloat16})
_NATIVE = frozenset({torch.float32, torch.float64, torch.float16, torch.bfloat16})
_PLAIN = (Tensor, torch.nn.Parameter)
_SIGNED = frozenset({torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8})

# Above this many elements, in whatever order on a CPU, two passes are faster than the one of aminmax.
_AMINMAX_LIMIT = 1 << 14

# Integers that are raised to float64 at once: 32 MiB. Measured on 2 cores with 16 M integers: parts of 2**20 take 1.6
# times as long, all at once more than twice.
_PART = 1 << 22
# 512 KiB of float64. Measured on 2 cores with 16 M elements: buffers of 2**14 and 2**18 take half as long again, of
# 2**22 three to five times as long.
_WIDE = 1 << 16

_STRIDED = torch.strided
_is_functorch_wrapped = torch._C._functorch.is_functorch_wrapped_tensor


Reduced: TypeAlias = tuple[Tensor | None, Tensor | None, Tensor | None, Tensor | None]


class Deferred(Statistics, kw_only=True, eq=False):
    """Statistics whose numbers are still on a device; ``reduced`` holds max, min, sum (or mean) and norm."""

    reduced: Reduced
    count: int
    rounds: bool

    def fill(self, numbers: Sequence[Number | None]) -> None:
        """Take the fetched numbers."""
        self.max, self.min, total, self.norm = numbers
        self.mean = _mean(total, self.count, self.rounds)
        self.reduced = (None, None, None, None)
        self.is_waiting = False


def is_readable(tensor: Tensor) -> bool:
    """Return whether a tensor has values that can be looked at: not meta, fake, batched, sparse or quantized."""
    return not (
        tensor.is_meta
        or tensor.layout is not _STRIDED
        or tensor.is_quantized
        or tensor.is_nested
        or (type(tensor) not in _PLAIN and is_symbolic(tensor))
        or _is_functorch_wrapped(tensor)
    )


def local_part(tensor: Tensor) -> Tensor:
    """Return what this process holds of a distributed tensor; any other tensor is that part itself.

    Looking at the whole of it would communicate, which an observer must not.
    """
    part: Tensor = getattr(tensor, "_local_tensor", tensor)
    return part


def is_symbolic(tensor: Tensor) -> bool:
    """Return whether a tensor has a shape and no values, as tracers make them."""
    return any(base.__name__ in ("FakeTensor", "FunctionalTensor") for base in type(tensor).__mro__)


def measure(tensor: Tensor) -> Statistics:
    """Compute the statistics of a tensor. The caller has turned gradients and overrides off.

    On a CPU the numbers are there at once; on a device they are a Deferred, to be fetched with others.
    """
    if not is_readable(tensor):
        return Statistics()
    count = tensor.numel()
    if count == 0:
        return Statistics()
    if is_expanded(tensor):
        return _measure_expanded(tensor, count)
    if tensor.is_cpu:
        return _measure_cpu(tensor, count)
    if tensor.is_cuda and torch.cuda.is_current_stream_capturing():
        # What runs now would become part of the graph that is captured.
        return Statistics()
    reduced, rounds = _reduce(tensor, count)
    return Deferred(reduced=reduced, count=count, rounds=rounds, is_waiting=True)


def _measure_expanded(tensor: Tensor, count: int) -> Statistics:
    """Measure the elements once: extrema and mean are those of all, the norm is that of as many repeats."""
    once = without_repeats(tensor)
    statistics, repeats = measure(once), count // once.numel()
    if isinstance(statistics, Deferred):
        most, least, total, norm = statistics.reduced
        statistics.reduced = (most, least, total, None if norm is None else norm * math.sqrt(repeats))
    elif statistics.norm is not None:
        statistics.norm *= math.sqrt(repeats)
    if statistics.nan_count is not None:
        statistics.nan_count *= repeats
        statistics.posinf_count = (statistics.posinf_count or 0) * repeats
        statistics.neginf_count = (statistics.neginf_count or 0) * repeats
    return statistics


def fetch(waiting: list[Deferred]) -> None:
    """Fetch the numbers of many tensors to the host, with one transfer per device and dtype."""
    groups: dict[tuple[torch.device, torch.dtype], list[tuple[list[Number | None], int, Tensor]]] = {}
    numbers: list[list[Number | None]] = []
    for one in waiting:
        row: list[Number | None] = [None] * 4
        numbers.append(row)
        for place, value in enumerate(one.reduced):
            if value is not None:
                groups.setdefault((value.device, value.dtype), []).append((row, place, value))
    for group in groups.values():
        for (row, place, _), number in zip(group, torch.stack([value for *_, value in group]).tolist(), strict=True):
            row[place] = number
    for one, row in zip(waiting, numbers, strict=True):
        one.fill(row)


def _measure_cpu(tensor: Tensor, count: int) -> Statistics:
    dtype = tensor.dtype
    if count == 1 and dtype in _NATIVE:
        value = tensor.item()
        result = Statistics(value, value, value, value if tensor.dim() == 0 else abs(value))
        result.is_finite = value - value == 0.0
        if not result.is_finite:
            _add_nonfinite(tensor, result)
        return result
    if count > LARGE and dtype in _NATIVE and tensor.is_contiguous():
        return _measure_blocks(tensor, count)
    if dtype is torch.float32:
        if tensor.is_contiguous():
            (low, high), together = _aminmax(tensor), tensor
        else:
            (high, low), together = _extrema(tensor, count), _together(tensor, count)
        least, most = low.item(), high.item()
        mean, length = c_float(_sum(tensor).item() / count).value, _vector_norm(together).item()
        # Infinite and NaN is such a sum where one of the four is.
        if (most - least + mean + length) * 0.0 == 0.0:
            return Statistics(most, least, mean, length, is_finite=True)
        return _checked(tensor, Statistics(most, least, mean, length), count, rounds=True)
    (most_, least_, total, norm), rounds = _reduce(tensor, count)
    values = [None if value is None else value.item() for value in (most_, least_, total, norm)]
    return _checked(tensor, Statistics(values[0], values[1], _mean(values[2], count, rounds), values[3]), count, rounds)


def _measure_blocks(tensor: Tensor, count: int) -> Statistics:
    rounds = tensor.dtype is not torch.float64
    most, least, total, length = reduce_blocks(tensor, torch.float32 if rounds else torch.float64)
    norm = c_float(length).value if rounds else length
    return _checked(tensor, Statistics(most, least, _mean(total, count, rounds), norm), count, rounds)


def reduce_blocks(tensor: Tensor, wide: torch.dtype) -> tuple[float, float, float, float]:
    """Return max, min, sum and 2-norm of a contiguous tensor of floating point.

    Sum and norm of a block are taken in the dtype ``wide``, those of the tensor in float64. NaN and infinities come out
    as they do of a whole tensor.
    """
    least, most, totals, norms = zip(
        *(
            (
                *(extremum.item() for extremum in torch.aminmax(block)),
                torch.sum(block, dtype=wide).item(),
                torch.linalg.vector_norm(block, dtype=wide).item(),
            )
            for block in torch.split(tensor.view(-1), _BLOCK)
        ),
        strict=True,
    )
    # numpy's extrema are NaN where one of them is, Python's only where it comes first.
    return float(np.max(most)), float(np.min(least)), sum(totals), math.sqrt(sum(norm * norm for norm in norms))


def _checked(tensor: Tensor, result: Statistics, count: int, rounds: bool) -> Statistics:
    """Add to numbers that are not finite what is known of the tensor's finite values."""
    if not (_is_finite(result.max) and _is_finite(result.min)):
        _add_nonfinite(tensor, result)
    elif not (_is_finite(result.mean) and _is_finite(result.norm)):
        _take_wide(tensor, result, count, rounds)
    return result


def _reduce(tensor: Tensor, count: int) -> tuple[Reduced, bool]:
    dtype = tensor.dtype
    if dtype.is_complex:
        reduced, rounds = _reduce(tensor.abs(), count)
        return (reduced[0], reduced[1], reduced[2], None), rounds
    if dtype is torch.bool:
        # A third of what any() and all() take on a CPU.
        return (torch.amax(tensor), torch.amin(tensor), None, None), False
    if dtype not in _NATIVE and dtype not in _SIGNED:
        return _reduce_widened(tensor, count)
    if count == 1:
        value = tensor.reshape(()).clone()
        norm = value if tensor.dim() == 0 else value.abs()
        return (value, value, value, norm), False
    most, least = _extrema(tensor, count)
    if dtype in _SIGNED:
        return (most, least, torch.sum(tensor, dtype=torch.float64), _norm_of_integers(tensor, count)), False
    wide = torch.float32 if dtype in _HALF else dtype
    return (most, least, torch.sum(tensor, dtype=wide), _norm(tensor, wide)), wide is torch.float32


def _extrema(tensor: Tensor, count: int) -> tuple[Tensor, Tensor]:
    if count <= _AMINMAX_LIMIT or not tensor.is_cpu or tensor.is_contiguous():
        low, high = _aminmax(tensor)
        return high, low
    return torch.amax(tensor), torch.amin(tensor)


# Asked of every tensor that is recorded, so they are looked up once.
_aminmax, _sum, _vector_norm = torch.aminmax, torch.sum, torch.linalg.vector_norm


def _norm(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    norm: Tensor = _vector_norm(_together(tensor, tensor.numel()), dtype=dtype)
    return norm


def _together(tensor: Tensor, count: int) -> Tensor:
    """Return a tensor whose elements lie side by side.

    On a CPU torch adds up the squares of others one by one: five times as slow as of a copy, and ten times as far off.
    """
    if tensor.is_contiguous() or not tensor.is_cpu or count > LARGE or is_dense(tensor):
        return tensor
    return tensor.contiguous()


def _norm_of_integers(tensor: Tensor, count: int) -> Tensor:
    # Part by part, because float64 takes up to eight times the memory.
    if count <= _PART:
        return _norm(tensor.double(), torch.float64)
    parts = [_norm(part.double(), torch.float64) for part in torch.split(tensor.flatten(), _PART)]
    return _norm(torch.stack(parts), torch.float64)


def _reduce_widened(tensor: Tensor, count: int) -> tuple[Reduced, bool]:
    dtype = tensor.dtype
    if dtype is torch.uint64:
        # No wider integer exists: shifting by 2**63 keeps the order, and the extrema are shifted back as uint64.
        shifted = tensor.view(torch.int64) ^ torch.iinfo(torch.int64).min
        most, least = ((value ^ torch.iinfo(torch.int64).min).view(torch.uint64) for value in _extrema(shifted, count))
        wide = tensor.double()
        return (most, least, wide.sum(), _norm(wide, torch.float64)), False
    if dtype in (torch.uint16, torch.uint32):
        return _reduce(tensor.to(torch.int64), count)
    if dtype.is_floating_point and dtype.itemsize == 1 and "x2" not in str(dtype):
        return _reduce(tensor.to(torch.float32), count)
    return (None, None, None, None), False


def _mean(total: Number | None, count: int, rounds: bool) -> Number | None:
    if total is None:
        return None
    if type(total) is int:
        return total
    mean = total / count
    # A float32 tensor's mean is a float32 number; dividing in double and rounding once gives exactly that one.
    return c_float(mean).value if rounds else mean


def _is_finite(value: Number | None) -> bool:
    return value is None or isinstance(value, int) or math.isfinite(value)


def _add_nonfinite(tensor: Tensor, result: Statistics) -> None:
    """Count what is not finite, and take extrema as 1.2.2 does: of the finite values, else of all but NaN, else NaN."""
    values = _readable_floats(tensor)
    result.nan_count = int(torch.isnan(values).sum())
    result.posinf_count = int((values == math.inf).sum())
    result.neginf_count = int((values == -math.inf).sum())
    numbers = values[torch.isfinite(values)]
    if numbers.numel() == 0:
        numbers = values[~torch.isnan(values)]
    if not _is_finite(result.max):
        result.finite_max = numbers.max().item() if numbers.numel() else math.nan
    if not _is_finite(result.min):
        result.finite_min = numbers.min().item() if numbers.numel() else math.nan


def _take_wide(tensor: Tensor, result: Statistics, count: int, rounds: bool) -> None:
    """Take mean and norm again where they overflowed and the extrema did not."""
    values = _readable_floats(tensor).flatten()
    # The square of any narrower number is one of float64.
    largest = max(abs(float(result.max or 0)), abs(float(result.min or 0))) if values.dtype is torch.float64 else 1.0
    # One buffer that a cache holds: to get fresh memory costs more than what is done in it.
    buffer = torch.empty(min(count, _WIDE), dtype=torch.float64)
    sums, norms = [], []
    for part in torch.split(values, _WIDE):
        wide = buffer[: part.numel()].copy_(part)
        if largest != 1.0:
            wide /= largest
        sums.append(wide.sum().item())
        norms.append(_norm(wide, torch.float64).item())
    result.mean = _mean(largest * (math.fsum(sums) / count), 1, rounds)
    if result.norm is not None:
        result.norm = largest * math.hypot(*norms)


def _readable_floats(tensor: Tensor) -> Tensor:
    if tensor.is_complex():
        return tensor.abs()
    return tensor.float() if tensor.dtype.itemsize == 1 else tensor
