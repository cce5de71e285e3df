"""Large tensors drawn from what was recorded of them, each element by its place.

Drawn at once in their own dtype and on several threads, and only where they are read if a call reads a few rows of a
table. An element is the quantile of the tensor's distribution at a random word; dtypes of 16 bits and fewer, which have
few values, share such elements among their groups.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from msprobe_hooks.dump.schema import TensorElement
from pytest_msprobe.engine.replay.inputs.philox import GROUP, Piece, fill, words
from pytest_msprobe.engine.replay.inputs.recorded_statistics import (
    Mask,
    Peak,
    finite_range,
    integer_range,
    mask_of,
    masked,
    peak_of,
    placed_values,
    working_dtype,
)
from pytest_msprobe.engine.values.dtypes import dtype_named

#: From so many elements on a tensor is large: where the tables below are made in less time than they save.
LARGE = 2**22

# The streams of a tensor's seed.
_VALUES, _HIDDEN, _ANGLES, _WINDOWS = range(4)

# Quantiles are tabled at so many shares, which 16 bits number.
_SHARES = 2**16

_MIDDLES = (np.arange(_SHARES) + 0.5) / _SHARES

# A narrow tensor's groups are windows of so many elements, in which each value that 16 bits number is found 16 times.
_POOL = 2**20

# How far a normal distribution reaches, in standard deviations, and how finely it is looked at for its quantiles.
_REACH, _STEPS = 8.0, 2**14

# Rows of tables of these are left undrawn; other dtypes may be unknown to the kernels that draw.
_POSTPONED = (torch.float16, torch.bfloat16, torch.float32, torch.float64)

Placed = Sequence[tuple[range, Any]]


def is_large(element: TensorElement) -> bool:
    """Return whether a tensor is drawn here."""
    return math.prod(element.shape) >= LARGE


def large_tensor(element: TensorElement, dtype: torch.dtype, seed: int) -> torch.Tensor:
    """Draw a large contiguous CPU tensor of a dtype; see `random_inputs.random_tensor`."""
    if dtype.is_complex:
        # Statistics of complex tensors are those of the absolute values.
        magnitude = large_tensor(element, torch.float64, seed).abs()
        angle = _filled(element, torch.float64, _evenly(element, seed, _ANGLES, 0, 2 * math.pi, torch.float64))
        return torch.polar(magnitude, angle).to(dtype)
    if dtype is torch.bool:
        return _filled(element, dtype, _bools(element, seed))
    if not dtype.is_floating_point:
        return _filled(element, dtype, _integers(element, dtype, seed))
    mask = mask_of(element, *finite_range(element, dtype), math.prod(element.shape))
    if mask is not None:
        return _masked(element, mask, dtype, seed)
    return _filled(element, dtype, _floats(element, dtype, seed))


@dataclass(frozen=True)
class Undrawn:
    """A large tensor of zeros, of which memory is taken where it is drawn."""

    tensor: torch.Tensor
    piece: Piece

    def draw(self, groups: npt.NDArray[np.bool_] | None = None) -> None:
        """Draw it: all, or those groups of `GROUP` neighbouring elements that are true in ``groups``."""
        fill(_bits(self.tensor), self.piece, groups)


def undrawn_tensor(element: TensorElement, seed: int) -> Undrawn | None:
    """Return a large tensor that can be drawn in parts, and is then as `large_tensor` draws it; None for any other."""
    if not is_large(element):
        return None
    dtype = dtype_named(element.dtype)
    if dtype not in _POSTPONED:
        return None
    count = math.prod(element.shape)
    if mask_of(element, *finite_range(element, dtype), count) is not None:
        return None
    # The system gives it a page with the first write to one. torch.zeros writes to all, and NumPy asks for pages of
    # 2 MiB, of which a few rows touch all.
    pages = mmap.mmap(-1, count * dtype.itemsize, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return Undrawn(torch.frombuffer(pages, dtype=dtype).view(element.shape), _floats(element, dtype, seed))


def _filled(element: TensorElement, dtype: torch.dtype, piece: Piece) -> torch.Tensor:
    tensor = torch.empty(element.shape, dtype=dtype)
    fill(_bits(tensor), piece)
    return tensor


def _bits(tensor: torch.Tensor) -> npt.NDArray[Any]:
    """Return a contiguous tensor's memory as a flat array of integers; NumPy does not know all of torch's dtypes."""
    bits: npt.NDArray[Any] = tensor.view(-1).view(torch.uint8).numpy().view(f"u{tensor.dtype.itemsize}")
    return bits


def _floats(element: TensorElement, dtype: torch.dtype, seed: int) -> Piece:
    count = math.prod(element.shape)
    low, high = finite_range(element, dtype)
    peak = peak_of(element, low, high, count)
    values = (
        _evenly(element, seed, _VALUES, low, high, dtype)
        if peak is None
        else _peaked(element, seed, low, high, peak, dtype)
    )
    placed = _in_bits(placed_values(element, low, high, count), working_dtype(low, high, dtype), dtype)

    def piece(place: int, some: int) -> npt.NDArray[Any]:
        drawn = values(place, some)
        _place(drawn, placed, place)
        return drawn

    return piece


def _evenly(element: TensorElement, seed: int, stream: int, low: float, high: float, dtype: torch.dtype) -> Piece:
    """Return what gives values spread evenly from low to high, however far apart they are."""
    working = working_dtype(low, high, dtype)
    if dtype.itemsize <= 2:
        return _tabled(element, seed, low * (1 - _MIDDLES) + high * _MIDDLES, working, dtype)
    own, bits = _numpy(working), working.itemsize * 8
    half, middle = own.type(high / 2 - low / 2), own.type(high / 2 + low / 2)

    def piece(place: int, some: int) -> npt.NDArray[Any]:
        values = words(seed, stream, place, some, bits).view(f"i{working.itemsize}").astype(own)
        values *= own.type(2.0 ** (1 - bits))
        values *= half
        values += middle
        return _as_bits(values.clip(own.type(low), own.type(high), out=values), dtype)

    return piece


def _peaked(element: TensorElement, seed: int, low: float, high: float, peak: Peak, dtype: torch.dtype) -> Piece:
    """Return what gives normal values, with those that lie outside spread evenly from low to high.

    At the extrema they would pile up, where ties decide what max and topk select.
    """
    near, far = (peak.mean + side * _REACH * peak.deviation for side in (-1, 1))
    places = np.concatenate((np.linspace(max(low, near), min(high, far), _STEPS), (low, high)))
    places.sort()
    normal = torch.special.ndtr(torch.from_numpy((places - peak.mean) / peak.deviation)).numpy()
    inside = normal - normal[0]
    shares = inside + (1 - inside[-1]) * (places / 2 - low / 2) / (high / 2 - low / 2)
    working = working_dtype(low, high, dtype)
    if dtype.itemsize <= 2:
        return _tabled(element, seed, np.interp(_MIDDLES, shares, places), working, dtype)
    return _between(seed, np.interp(np.arange(_SHARES + 1) / _SHARES, shares, places), working, dtype)


def _tabled(
    element: TensorElement, seed: int, quantiles: npt.NDArray[np.float64], working: torch.dtype, dtype: torch.dtype
) -> Piece:
    """Return what gives the bits of a narrow dtype's quantiles in the middle of random shares.

    Each group is a window at a random place of a million such elements, at a tenth of the time that every element would
    take: more of them would be the same few values in another order.
    """
    table = _bits(torch.from_numpy(quantiles).to(working).to(dtype))
    drawn = np.empty(_POOL + GROUP - 1, table.dtype)
    fill(drawn[:_POOL], lambda place, some: table.take(words(seed, _VALUES, place, some, 16), mode="clip"))
    drawn[_POOL:] = drawn[: GROUP - 1]
    windows = np.lib.stride_tricks.sliding_window_view(drawn, GROUP)
    groups = -(-math.prod(element.shape) // GROUP)
    places = words(seed, _WINDOWS, 0, -(-groups // GROUP) * GROUP, 32) % _POOL

    def piece(place: int, some: int) -> npt.NDArray[Any]:
        first = place // GROUP
        values: npt.NDArray[Any] = windows[places[first : first + some // GROUP]].reshape(-1)
        return values

    return piece


def _between(seed: int, quantiles: npt.NDArray[np.float64], working: torch.dtype, dtype: torch.dtype) -> Piece:
    """Return what gives the bits of values that are linear between the quantiles where the shares begin."""
    own, bits = _numpy(working), working.itemsize * 8
    least, steps = quantiles[:-1].astype(own), np.diff(quantiles).astype(own)
    low, high = quantiles[[0, -1]].astype(own)
    parts = 2**bits // _SHARES

    def piece(place: int, some: int) -> npt.NDArray[Any]:
        drawn = words(seed, _VALUES, place, some, bits)
        share = (drawn // parts).astype(np.intp)
        values = (drawn & (parts - 1)).astype(own)
        values *= own.type(1 / parts)
        values *= steps.take(share, mode="clip")
        values += least.take(share, mode="clip")
        return _as_bits(values.clip(low, high, out=values), dtype)

    return piece


def _numpy(dtype: torch.dtype) -> np.dtype[Any]:
    """Return NumPy's dtype of the same name. Raises TypeError where there is none."""
    return np.dtype(str(dtype).removeprefix("torch."))


def _as_bits(values: npt.NDArray[Any], dtype: torch.dtype) -> npt.NDArray[Any]:
    """Return floats in a dtype that NumPy has, as the integers that have its bits."""
    bits: npt.NDArray[Any] = values.astype(_numpy(dtype), copy=False).view(f"u{dtype.itemsize}")
    return bits


def _integers(element: TensorElement, dtype: torch.dtype, seed: int) -> Piece:
    count = math.prod(element.shape)
    low, high = integer_range(element, dtype)
    span, first = high - low + 1, np.uint64(low % 2**64)
    own = np.dtype(f"u{_numpy(dtype).itemsize}")
    modulus = 2 ** (8 * dtype.itemsize)
    placed = [(range(1), low % modulus), (range(count - 1, count), high % modulus)]

    def piece(place: int, some: int) -> npt.NDArray[Any]:
        if span <= 2**32:
            offsets = np.multiply(words(seed, _VALUES, place, some, 32), np.uint64(span), dtype=np.uint64)
            offsets >>= np.uint64(32)
        else:
            offsets = words(seed, _VALUES, place, some, 64)
            offsets = offsets if span == 2**64 else offsets % np.uint64(span)
        # Of 64 bits that wrap around, the lowest are those of the sum in any integer dtype.
        values: npt.NDArray[Any] = np.add(offsets, first, out=offsets).astype(own)
        _place(values, placed, place)
        return values

    return piece


def _bools(element: TensorElement, seed: int) -> Piece:
    count = math.prod(element.shape)
    if element.max is not None and not element.max:
        return lambda place, some: np.zeros(some, np.uint8)
    if element.min:
        return lambda place, some: np.ones(some, np.uint8)
    placed = [(range(1), 0), (range(count - 1, count), 1)]

    def piece(place: int, some: int) -> npt.NDArray[Any]:
        values: npt.NDArray[Any] = words(seed, _VALUES, place, some, 8) >> 7
        _place(values, placed, place)
        return values

    return piece


def _masked(element: TensorElement, mask: Mask, dtype: torch.dtype, seed: int) -> torch.Tensor:
    low, high = finite_range(element, dtype)
    working = working_dtype(low, high, dtype)
    # Torch cannot fill what has 8 bits.
    own = working if dtype.itemsize == 1 else dtype
    share = mask.share * 2**32
    others = _filled(element, own, _evenly(element, seed, _VALUES, mask.low, mask.high, own))
    hidden = _filled(element, torch.bool, lambda place, some: words(seed, _HIDDEN, place, some, 32) < share)
    values = masked(mask, others, hidden, torch.Generator().manual_seed(seed)).to(dtype)
    _place(_bits(values), _in_bits(placed_values(element, low, high, values.numel()), working, dtype), 0)
    return values


def _in_bits(placed: Sequence[tuple[range, float]], working: torch.dtype, dtype: torch.dtype) -> Placed:
    """Return what is placed as the bits of a dtype, rounded by way of the one that is worked in."""
    bits = _bits(torch.tensor([value for _, value in placed], dtype=working).to(dtype))
    return [(places, value) for (places, _), value in zip(placed, bits, strict=True)]


def _place(values: npt.NDArray[Any], placed: Placed, start: int) -> None:
    """Write what belongs to certain places of a tensor into its values from ``start`` on."""
    for places, value in placed:
        first = max(places.start, start)
        first += (places.start - first) % places.step
        values[first - start : max(first, places.stop) - start : places.step] = value
