"""Random tensors that look like the recorded ones.

A tensor depends on the seed, the record's name and the argument's path alone: not on order, workers or devices.
"""

from __future__ import annotations

import hashlib
import math
import random

import msgspec
import numpy as np
import torch

from msprobe_hooks.dump.schema import Number, TensorElement
from pytest_msprobe.engine.replay.inputs.large_tensors import is_large, large_tensor
from pytest_msprobe.engine.replay.inputs.recorded_statistics import (
    finite_range,
    integer_range,
    mask_of,
    masked,
    peak_of,
    placed_values,
    working_dtype,
)
from pytest_msprobe.engine.values.dtypes import dtype_named
from pytest_msprobe.engine.values.error_kinds import is_out_of_memory
from pytest_msprobe.results.outcomes import Skip, SkipReason

_INT64 = torch.iinfo(torch.int64)
_WIDE_UNSIGNED = (torch.uint16, torch.uint32, torch.uint64)


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
        if element.nnz is not None:
            return _random_sparse(element, element.nnz, seed)
        return large_tensor(element, dtype, seed) if is_large(element) else _random_of(element, dtype, seed)
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


def _random_sparse(element: TensorElement, nnz: int, seed: int) -> torch.Tensor:
    """Draw a sparse COO tensor; if it is not coalesced, its last element has the place of the first one."""
    count, generator = math.prod(element.shape), random.Random(seed)
    if element.is_coalesced:
        places = sorted(generator.sample(range(count), min(nnz, count)))
    else:
        places = generator.choices(range(count), k=min(nnz, 4 * count)) if count else []
        places[-1:] = places[:1]
    indices = torch.tensor(np.array(np.unravel_index(np.array(places, int), element.shape)))
    values = random_tensor(msgspec.structs.replace(element, shape=(len(places),), nnz=None), seed)
    return torch.sparse_coo_tensor(
        indices, values, element.shape, is_coalesced=element.is_coalesced, check_invariants=False
    )


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


def _random_complex(element: TensorElement, dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    # Statistics of complex tensors are those of the absolute values.
    magnitude = _random_float(element, torch.float64, generator).abs()
    angle = torch.rand(element.shape, generator=generator, dtype=torch.float64) * (2 * math.pi)
    return torch.polar(magnitude, angle).to(dtype)


def _random_float(element: TensorElement, dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    low, high = finite_range(element, dtype)
    working = working_dtype(low, high, dtype)
    count = math.prod(element.shape)
    mask, peak = mask_of(element, low, high, count), peak_of(element, low, high, count)
    if mask is not None:
        others = _uniform(element.shape, mask.low, mask.high, working, generator)
        hidden = torch.rand(element.shape, generator=generator) < mask.share
        values = masked(mask, others, hidden, generator)
    elif peak is None:
        values = _uniform(element.shape, low, high, working, generator)
    else:
        values = torch.randn(element.shape, generator=generator, dtype=working).mul_(peak.deviation).add_(peak.mean)
        _redraw_outside(values, low, high, generator)
    # Of few elements numpy compares, finds and sets some at a fraction of what it costs torch.
    flat = values.clamp_(low, high).view(-1).numpy()
    for places, value in placed_values(element, low, high, count):
        flat[places.start : places.stop : places.step] = value
    return values.to(dtype)


def _redraw_outside(values: torch.Tensor, low: float, high: float, generator: torch.Generator) -> None:
    """Spread the values beyond low and high evenly between them.

    Clamping would pile them up at the extrema, where ties decide what max and topk select.
    """
    flat = values.view(-1).numpy()
    (outside,) = ((flat < low) | (flat > high)).nonzero()
    if outside.size:
        flat[outside] = _uniform(outside.shape, low, high, values.dtype, generator).numpy()


def _uniform(
    shape: tuple[int, ...], low: float, high: float, dtype: torch.dtype, generator: torch.Generator
) -> torch.Tensor:
    values = torch.rand(shape, generator=generator, dtype=dtype)
    if not math.isfinite(high - low):
        return values.mul_(high / 2 - low / 2).add_(low / 2).mul_(2)
    return values.mul_(high - low).add_(low)


def _with_ends(values: torch.Tensor, low: float, high: float) -> torch.Tensor:
    # numpy writes to an element at a tenth of what it costs torch.
    flat = values.view(-1).numpy()
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
