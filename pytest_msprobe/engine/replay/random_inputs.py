"""Random tensors that look like the recorded ones.

A tensor depends on the seed, the record's name and the argument's path alone: not on order, workers or devices.
"""

from __future__ import annotations

import hashlib
import math
from typing import NamedTuple

import msgspec
import numpy as np
import torch

from msprobe_hooks.dump.schema import Number, TensorElement
from pytest_msprobe.engine.replay.masks import mask_of, masked
from pytest_msprobe.engine.values.dtypes import dtype_named
from pytest_msprobe.engine.values.failures import is_out_of_memory
from pytest_msprobe.results.skips import Skip, SkipReason

_INT64 = torch.iinfo(torch.int64)
_WIDE_UNSIGNED = (torch.uint16, torch.uint32, torch.uint64)

# A uniform distribution's standard deviation is its range / sqrt(12) = 0.289; below this one it is clearly peaked.
_PEAKED_SHARE = 0.25


def stream_seed(seed: int, record: str, path: str) -> int:
    """Return the 63-bit seed of one argument's random stream."""
    digest = hashlib.blake2b(f"{seed}\0{record}\0{path}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def random_tensor(element: TensorElement, seed: int) -> torch.Tensor:
    """Draw a contiguous CPU tensor with the recorded shape, dtype and extrema.

    Extrema are hit exactly; where mean and norm say that values are peaked they are, not uniform; masked scores are
    masked (`masks`); NaN and infinities appear where the statistics show them. Raises Skip where the dtype is unknown
    or cannot be drawn.
    """
    dtype = dtype_named(element.dtype)
    try:
        return _random_of(element, dtype, seed)
    except (RuntimeError, TypeError) as error:
        if is_out_of_memory(error):
            raise
        raise Skip(SkipReason.UNKNOWN_DTYPE, f"{element.dtype} cannot be drawn: {error}") from None


def _random_of(element: TensorElement, dtype: torch.dtype, seed: int) -> torch.Tensor:
    if 0 in element.shape:
        return torch.empty(element.shape, dtype=dtype)
    generator = torch.Generator().manual_seed(seed)
    if dtype is torch.bool:
        return _random_bool(element, generator)
    if dtype.is_complex:
        return _random_complex(element, dtype, generator)
    if dtype.is_floating_point:
        return _random_float(element, dtype, generator)
    return _random_integer(element, dtype, generator, seed)


def _random_bool(element: TensorElement, generator: torch.Generator) -> torch.Tensor:
    if element.max is not None and not element.max:
        return torch.zeros(element.shape, dtype=torch.bool)
    if element.min:
        return torch.ones(element.shape, dtype=torch.bool)
    values = torch.rand(element.shape, generator=generator) < 0.5
    return _with_ends(values, False, True)


def _random_integer(element: TensorElement, dtype: torch.dtype, generator: torch.Generator, seed: int) -> torch.Tensor:
    low, high = integer_range(element, dtype)
    if dtype in _WIDE_UNSIGNED:
        name = str(dtype).removeprefix("torch.")
        drawn = np.random.default_rng(seed).integers(low, high, size=element.shape, dtype=name, endpoint=True)
        wide = np.asarray(drawn)
        wide.flat[0], wide.flat[-1] = low, high
        return torch.from_numpy(wide)
    if low == high:
        return torch.full(element.shape, low, dtype=dtype)
    # torch excludes the upper end, which int64's largest value cannot lie below; the end is placed afterwards.
    values = torch.randint(low, min(high, _INT64.max - 1) + 1, element.shape, generator=generator, dtype=dtype)
    return _with_ends(values, low, high)


def integer_range(element: TensorElement, dtype: torch.dtype) -> tuple[int, int]:
    """Return the recorded range, 0 to 1 where it is unknown, within what the integer dtype holds."""
    limits = torch.iinfo(dtype)
    low, high = (_whole(bound, default) for bound, default in ((element.min, 0), (element.max, 1)))
    # Version 1.2.2 took integer statistics through float32, so they may lie beyond the dtype.
    low, high = (max(limits.min, min(limits.max, bound)) for bound in sorted((low, high)))
    return low, high


def _whole(bound: Number | None, default: int) -> int:
    return int(bound) if bound is not None and math.isfinite(bound) else default


def _random_complex(element: TensorElement, dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    # Statistics of complex tensors are those of the absolute values.
    magnitude = _random_float(element, torch.float64, generator).abs()
    angle = torch.rand(element.shape, generator=generator, dtype=torch.float64) * (2 * math.pi)
    return torch.polar(magnitude, angle).to(dtype)


def _random_float(element: TensorElement, dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    low, high = finite_range(element, dtype)
    # Half precision would draw from a coarse grid, and a range can be wider than the dtype's largest value.
    working = torch.float64 if dtype is torch.float64 or not _fits_float32(high - low) else torch.float32
    count = math.prod(element.shape)
    mask, peak = mask_of(element, low, high, count), _peak(element, low, high, count)
    if mask is not None:
        others = _uniform(element.shape, mask.low, mask.high, working, generator)
        values = masked(mask, others, generator)
    elif peak is None:
        values = _uniform(element.shape, low, high, working, generator)
    else:
        values = torch.randn(element.shape, generator=generator, dtype=working).mul_(peak.deviation).add_(peak.mean)
        found_low, found_high = (bound.item() for bound in values.aminmax())
        if found_low < low or found_high > high:
            # Clamping would pile them up at the extrema, where ties decide what max and topk select.
            outside = ((values < low) | (values > high)).nonzero(as_tuple=True)
            values[outside] = _uniform(outside[0].shape, low, high, working, generator)
    values = _with_ends(values.clamp_(low, high), low, high)
    return _with_non_finite(values, element).to(dtype)


def _uniform(
    shape: tuple[int, ...], low: float, high: float, dtype: torch.dtype, generator: torch.Generator
) -> torch.Tensor:
    values = torch.rand(shape, generator=generator, dtype=dtype)
    if not math.isfinite(high - low):
        return values.mul_(high / 2 - low / 2).add_(low / 2).mul_(2)
    return values.mul_(high - low).add_(low)


def _fits_float32(span: float) -> bool:
    return span < torch.finfo(torch.float32).max


def finite_range(element: TensorElement, dtype: torch.dtype) -> tuple[float, float]:
    """Return the range of the finite values; what the dump does not tell is made up around what it does."""
    limits = torch.finfo(dtype)
    known = [
        float(bound)
        for bound in (element.finite_min, element.finite_max, element.min, element.max, element.mean)
        if bound is not None and math.isfinite(bound)
    ]
    low, high = (min(known), max(known)) if known else (-1.0, 1.0)
    if low == high and element.max == math.inf:
        high = low + max(1.0, abs(low))
    return max(low, limits.min), min(high, limits.max)


class _Peak(NamedTuple):
    mean: float
    deviation: float


def _peak(element: TensorElement, low: float, high: float, count: int) -> _Peak | None:
    """Return mean and standard deviation where they are known and say that the values are peaked."""
    if element.mean is None or element.norm is None or count < 3:
        return None
    mean, norm = float(element.mean), float(element.norm)
    if not (math.isfinite(mean) and math.isfinite(norm) and low <= mean <= high):
        return None
    deviation = math.sqrt(max(norm * norm / count - mean * mean, 0.0)) if norm < 1e150 else math.inf
    return _Peak(mean, deviation) if 0.0 < deviation < _PEAKED_SHARE * (high - low) else None


def _with_non_finite(values: torch.Tensor, element: TensorElement) -> torch.Tensor:
    """Place what the extrema show: NaN or a maximum of inf at one place, a minimum of -inf at every second one.

    A minimum of -inf comes from an attention mask more often than from anything else.
    """
    maximum, minimum = _float_or_zero(element.max), _float_or_zero(element.min)
    flat = values.view(-1)
    if math.isnan(maximum):
        everywhere = math.isnan(_float_or_zero(element.finite_max))
        flat[0 if everywhere else flat.numel() // 2 :: 1 if everywhere else flat.numel()] = math.nan
        return values
    if minimum == -math.inf:
        everywhere = maximum == -math.inf or flat.numel() == 1
        flat[: None if everywhere else -1 : 1 if everywhere else 2] = -math.inf
    if maximum == math.inf:
        flat[0 if minimum == math.inf else -1 :] = math.inf
    return values


def _float_or_zero(bound: Number | None) -> float:
    return 0.0 if bound is None else float(bound)


def _with_ends(values: torch.Tensor, low: float, high: float) -> torch.Tensor:
    # numpy writes to an element at a tenth of what it costs torch.
    flat = values.numpy().reshape(-1)
    flat[0], flat[-1] = low, high
    return values


def narrowed(element: TensorElement) -> TensorElement:
    """Return a tensor of floats with its finite values within 1 of their mean; any other as it is."""
    if "float" not in element.dtype.lower():
        return element
    names = [name if _is_finite(getattr(element, name)) else f"finite_{name}" for name in ("min", "max")]
    low, high = (getattr(element, name) for name in names)
    if not (_is_finite(low) and _is_finite(high)):
        return element
    center = min(max(element.mean if _is_finite(element.mean) else 0.0, low), high)
    ends = dict(zip(names, (max(low, center - 1.0), min(high, center + 1.0)), strict=True))
    return msgspec.structs.replace(element, mean=None, norm=None, **ends)


def _is_finite(number: Number | None) -> bool:
    return number is not None and math.isfinite(number)
