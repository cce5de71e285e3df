"""Differences of two tensors by their values: the distance in float64, roundings, and the rank of the difference."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from msprobe_standards import chunks

# Two elements a byte, of which torch (2.8 and later) converts none.
_FLOAT4 = getattr(torch, "float4_e2m1fn_x2", None)
# By their bits: sign, two of exponent, one of mantissa (OCP Microscaling Formats 1.0, 5.3.3).
_FLOAT4_VALUES = torch.tensor([sign * x for sign in (1, -1) for x in (0, 0.5, 1, 1.5, 2, 3, 4, 6)], dtype=torch.float64)

# Floats whose bits are ordered as their values, with a signed integer of their size.
_BITS = {
    torch.float16: torch.int16,
    torch.bfloat16: torch.int16,
    torch.float32: torch.int32,
    torch.float64: torch.int64,
}
# What weights go through on their way, and what an engine holds them in.
_NARROW = (torch.bfloat16, torch.float16)
_ON_THE_WAY = (*_NARROW, torch.float8_e4m3fn, torch.float8_e5m2)

# Adapters have less; sketching more takes longer than it is worth.
_HIGHEST_RANK = 128
_OVERSAMPLING = 8
# A GiB of float64.
_MOST_ELEMENTS = 1 << 27


@dataclass(frozen=True, slots=True)
class Distance:
    """``cosine`` is 1 where both are zero, None where one is; ``relative`` is the norm of the difference by golden's.

    ``is_equal`` is of bits; a NaN in one alone makes all numbers infinite.
    """

    is_equal: bool
    max_abs: float
    max_relative: float
    l2: float
    relative: float
    cosine: float | None


def distance(target: Tensor, golden: Tensor) -> Distance:
    """Measure two plain tensors of one shape, of any dtypes."""
    ours, theirs = (tensor.detach().resolve_conj().resolve_neg() for tensor in (target, golden))
    if have_equal_bits(ours, theirs):
        return Distance(True, 0.0, 0.0, 0.0, 0.0, 1.0)
    l2 = target_norm = golden_norm = product = max_abs = max_relative = 0.0
    for t, g in _parts(ours, theirs):
        difference = _difference(t, g)
        t, g = _wide(t), _wide(g)
        max_abs = max(max_abs, float(difference.max()))
        ratio = torch.where(difference == 0, 0.0, difference / g.abs())
        max_relative = max(max_relative, float(ratio.nan_to_num(nan=math.inf, posinf=math.inf).max()))
        t, g = t.nan_to_num(0.0, 0.0, 0.0), g.nan_to_num(0.0, 0.0, 0.0)
        product += float(t @ g)
        l2, target_norm, golden_norm = map(
            math.hypot, (l2, target_norm, golden_norm), (_norm(difference), _norm(t), _norm(g))
        )
    relative = 0.0 if not max_abs else l2 / golden_norm if 0 < golden_norm < math.inf else math.inf
    return Distance(False, max_abs, max_relative, l2, relative, _cosine(target_norm, product, golden_norm))


def have_equal_bits(target: Tensor, golden: Tensor) -> bool:
    """Return whether two plain tensors agree in shape, dtype and each bit."""
    if target.shape != golden.shape or target.dtype != golden.dtype:
        return False
    return all(torch.equal(t.view(torch.uint8), g.view(torch.uint8)) for t, g in _parts(target, golden))


def _parts(target: Tensor, golden: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    if target.numel():
        yield from ((t.contiguous(), g.contiguous()) for _, t, g in chunks(target, golden))


def _difference(t: Tensor, g: Tensor) -> Tensor:
    """Return how far elements are apart; infinities and NaN at the same places are equal."""
    ours, theirs = _wide(t), _wide(g)
    apart = torch.where((ours == theirs) | (ours.isnan() & theirs.isnan()), 0.0, ours - theirs).abs()
    apart = apart.nan_to_num(nan=math.inf, posinf=math.inf)
    if t.dtype == g.dtype and t.dtype in (torch.int64, torch.uint64):
        # float64 does not hold all of 64 bits, and integers that differ are at least 1 apart.
        apart = torch.where(t == g, 0.0, apart.clamp(min=1.0))
    return apart


def _norm(part: Tensor) -> float:
    """Return the norm, also where squares of float64 overflow or vanish."""
    largest = float(part.abs().max())
    return largest * float(torch.linalg.vector_norm(part / largest)) if 0 < largest < math.inf else largest


def can_be_measured(target: Tensor, golden: Tensor) -> bool:
    """Return whether the elements of two tensors are numbers that torch knows, as many on both sides."""
    packed = [tensor.dtype is _FLOAT4 for tensor in (target, golden)]
    return all(packed) or not (any(packed) or any(map(_is_opaque, (target, golden))))


def _is_opaque(tensor: Tensor) -> bool:
    """Return whether torch has a dtype, such as ``uint4``, for the name alone."""
    try:
        tensor.new_zeros(1, dtype=tensor.dtype).double()
    except (NotImplementedError, RuntimeError):
        return True
    return False


def _wide(part: Tensor) -> Tensor:
    if part.dtype is _FLOAT4:
        packed = part.view(torch.uint8)
        return _FLOAT4_VALUES[torch.stack([packed & 15, packed >> 4], -1).reshape(-1).long()]
    return torch.view_as_real(part.to(torch.complex128)).reshape(-1) if part.is_complex() else part.double()


def _cosine(target_norm: float, product: float, golden_norm: float) -> float | None:
    if not target_norm or not golden_norm:
        return 1.0 if target_norm == golden_norm else None
    return max(-1.0, min(1.0, product / target_norm / golden_norm))


def rounded_equal(target: Tensor, golden: Tensor) -> torch.dtype | None:
    """Return the dtype, bfloat16 or float16, in which the one is the other rounded; None where it is not."""
    pair = {target.dtype, golden.dtype}
    narrow = next((dtype for dtype in _NARROW if dtype in pair), None)
    if narrow is None or len(pair) == 1 or not pair & {torch.float32, torch.float64}:
        return None
    return narrow if all(torch.equal(t.to(narrow), g.to(narrow)) for t, g in _parts(target, golden)) else None


def rounding(target: Tensor, golden: Tensor) -> tuple[str, bool]:
    """Return in words that values which differ were rounded otherwise, empty where roundings do not explain them.

    The second value is whether another dtype on the way gives exactly the target; else values are a unit of the
    narrower dtype apart.
    """
    if not {target.dtype, golden.dtype} <= _BITS.keys() or not target.numel():
        return "", False
    own = _name(target.dtype)
    for dtype in _ON_THE_WAY:
        if dtype in (target.dtype, golden.dtype):
            continue
        if all(torch.equal(g.to(dtype).to(t.dtype), t) for t, g in _parts(target, golden)):
            twice = f" and then to {own}" if target.dtype != golden.dtype else f" and back to {own}"
            return f"rounded twice: golden's values rounded to {_name(dtype)}{twice}", True
    narrow = max(target.dtype, golden.dtype, key=lambda dtype: torch.finfo(dtype).eps)
    apart = 0
    for t, g in _parts(target, golden):
        ours, theirs = t.to(narrow), g.to(narrow)
        units = _ordered(ours) - _ordered(theirs)
        if bool((ours.isnan() | theirs.isnan()).any()) or int(units.abs().max()) > 1:
            return "", False
        apart += int(units.count_nonzero())
    if not apart:
        return f"equal when rounded to {_name(narrow)}", False
    verb = "value is" if apart == 1 else "values are"
    return f"{apart} of {target.numel()} {verb} one unit of {_name(narrow)} apart, as after another rounding", False


def _ordered(values: Tensor) -> Tensor:
    """Return integers that are one apart where floats are neighbours."""
    bits = values.view(_BITS[values.dtype])
    return torch.where(bits < 0, -(bits & torch.iinfo(bits.dtype).max).long(), bits.long())


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def low_rank(target: Tensor, golden: Tensor) -> int | None:
    """Return the numerical rank of the difference of two matrices where it is low, None where it is not.

    It is the smallest rank that leaves at most twice the norm of what both dtypes round, and a quarter of the
    difference's energy, by a randomized range finder (Halko, Martinsson and Tropp 2011, algorithm 4.1). Low is at most
    a quarter of either size, and half of the rows and columns that differ.
    """
    dtypes = (target.dtype, golden.dtype)
    if target.dim() != 2 or target.numel() > _MOST_ELEMENTS or not {*dtypes} <= _BITS.keys():
        return None
    ours, theirs = target.double(), golden.double()
    apart = ours - theirs
    energy = float(apart.square().sum())
    highest = min(min(target.shape) // 4, _HIGHEST_RANK)
    if not 0 < energy < math.inf or not highest:
        return None
    # Rounding to nearest is off by a uniform share of the distance between neighbours: its variance is a twelfth.
    rounded = sum(
        float(values.square().sum()) * torch.finfo(dtype).eps ** 2 / 12
        for values, dtype in zip((ours, theirs), dtypes, strict=True)
    )
    sketch = torch.randn(
        target.shape[1], highest + _OVERSAMPLING, generator=torch.Generator().manual_seed(0), dtype=torch.float64
    )
    basis = torch.linalg.qr(apart @ sketch).Q
    explained = torch.linalg.svdvals(basis.t() @ apart).square().cumsum(0)
    left = energy - explained[:highest]
    # Sums of squares are as exact as float64.
    allowed = max(4 * rounded, 1e-13 * energy)
    fitting = (left <= min(allowed, energy / 4)).nonzero()
    if not len(fitting) or allowed >= energy:
        return None
    rank = int(fitting[0]) + 1
    differing = min(int(apart.any(axis).sum()) for axis in (0, 1))
    return rank if 2 * rank <= differing else None
