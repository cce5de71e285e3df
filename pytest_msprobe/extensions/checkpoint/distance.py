"""Distance of two tensors of one shape, part by part in float64."""

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
