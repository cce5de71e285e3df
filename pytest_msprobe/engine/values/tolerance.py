"""Tolerances of elements, and errors relative to them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from msprobe_standards.dtypes import family, float_format
from msprobe_standards.tensor_layouts import as_array

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

_EXPONENT_BITS = np.int64(0x7FF << 52)  # IEEE 754 float64: 11 bits above 52 of mantissa


# Picking elements out costs more than looking at all of them where it is not a small share.
_FEW = 0.1


@dataclass(frozen=True, slots=True)
class Allowance:
    """Greatest error that an element may have: the greatest of these.

    ``ulps`` units of golden's last place in the target's dtype (of integers and bools: of 1), ``absolute``,
    ``relative`` to golden's magnitude, ``scaled`` to the greater of that and ``scale``, the mean magnitude of all
    elements.
    """

    ulps: float = 0.0
    absolute: float = 0.0
    relative: float = 0.0
    scaled: float = 0.0
    scale: float = 0.0

    def in_words(self, unit: str = "ULP") -> str:
        """Return what is allowed, in words; ``unit`` is what the last place is called."""
        parts = {
            f"{{:.4g}} {unit}": self.ulps,
            "{:.4g}": self.absolute,
            "{:.4g} of |golden|": self.relative,
            "{:.4g} of the greater of |golden| and its mean": self.scaled,
        }
        return " or ".join(text.format(value) for text, value in parts.items() if value) or "nothing"

    def limits(self, magnitude: Floats, ulp: Floats) -> Floats:
        """Return what each element may err by, of golden's magnitudes and their units in the last place."""
        limit = np.maximum(self.absolute, self.relative * magnitude)
        if self.ulps:
            limit = np.maximum(limit, self.ulps * ulp)
        if self.scaled:
            limit = np.maximum(limit, self.scaled * np.maximum(magnitude, self.scale))
        return limit


@dataclass(frozen=True, slots=True)
class Errors:
    """The errors of some elements: their size, in units of the last place, and as a share of what is allowed.

    Each is inf where a NaN or inf disagrees.
    """

    in_ulps: Floats
    shares: Floats


def errors(target: torch.Tensor, golden: torch.Tensor, dtype: torch.dtype, allowance: Allowance) -> Errors:
    """Return the errors of plain CPU tensors of one shape and family; ``dtype`` is that in which the target computed.

    NaN against NaN is equal, and so is an inf where golden overflows in ``dtype``.
    """
    if target.dtype == golden.dtype == dtype:
        # What is equal has no error, and is most of many tensors.
        unequal = target != golden
        if int(unequal.count_nonzero()) < _FEW * target.numel():
            differing = unequal.nonzero().view(-1)
            of_differing = _errors(target[differing], golden[differing], dtype, allowance)
            in_ulps, shares = np.zeros(target.numel()), np.zeros(target.numel())
            in_ulps[differing.numpy()], shares[differing.numpy()] = of_differing.in_ulps, of_differing.shares
            return Errors(in_ulps, shares)
    return _errors(target, golden, dtype, allowance)


def _errors(target: torch.Tensor, golden: torch.Tensor, dtype: torch.dtype, allowance: Allowance) -> Errors:
    with np.errstate(all="ignore"):
        rounded = golden.to(dtype)
        equal = ((target == rounded) | (target.isnan() & rounded.isnan())).numpy()
        actual, expected = _wide(target), _wide(golden)
        size = np.abs(actual - expected)
        if family(dtype) in ("bool", "int"):
            # Of integers beyond 2^53 a float64 may not see that they differ.
            size = np.where(equal, 0.0, np.maximum(size, 1.0))
        magnitude = np.abs(expected)
        ulp = _ulp(magnitude, dtype)
        size[equal & ~np.isfinite(size)] = 0.0
        size[np.isnan(size)] = np.inf
        # Where nothing is allowed, as a share of a golden zero, a finite error is not as bad as a NaN.
        shares = np.minimum(size / allowance.limits(magnitude, ulp), np.finfo(np.float64).max)
        in_ulps = size / ulp
        in_ulps[equal] = 0.0
        shares[size == 0] = 0.0
        shares[np.isinf(size)] = np.inf
        in_ulps[np.isinf(size)] = np.inf
        return Errors(in_ulps, shares)


def mean_magnitude(golden: torch.Tensor) -> float:
    """Return the mean magnitude of the finite elements but those that are 0; 0 where there is none."""
    magnitude = golden.abs() if golden.is_complex() or golden.is_floating_point() else golden.double().abs()
    finite = magnitude[magnitude.isfinite() & (magnitude != 0)]
    return float(finite.mean(dtype=torch.float64)) if finite.numel() else 0.0


def _wide(tensor: torch.Tensor) -> NDArray[np.float64] | NDArray[np.complex128]:
    wide = torch.complex128 if tensor.is_complex() else torch.float64
    values: NDArray[np.float64] = as_array(tensor.to(wide))
    return values


def _ulp(magnitude: Floats, dtype: torch.dtype) -> Floats:
    """Return the unit in the last place of each magnitude, of subnormal ones that of the smallest normal value."""
    if family(dtype) in ("bool", "int"):
        return np.ones_like(magnitude)
    numbers = float_format(dtype)
    # A float64 with its mantissa bits cleared is the power of two below it: exact, and faster than frexp.
    powers = np.maximum(magnitude, numbers.min_normal)
    powers.view(np.int64)[...] &= _EXPONENT_BITS
    powers *= 2.0**-numbers.mantissa_bits
    return powers
