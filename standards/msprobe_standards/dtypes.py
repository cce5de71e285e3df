"""Properties of dtypes: unit roundoff, range, family, and the limits that the standards' tables tie to them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Literal

import torch

Family = Literal["bool", "int", "float", "complex"]

_REAL_OF_COMPLEX = {
    torch.complex32: torch.float16,
    torch.complex64: torch.float32,
    torch.complex128: torch.float64,
}


@dataclass(frozen=True, slots=True)
class FloatFormat:
    """The numbers of a binary floating-point format.

    ``unit_roundoff`` is half the distance from 1.0 to the next value, ``mantissa_bits`` the stored bits of the
    significand, ``min_normal`` the smallest normal value, and ``overflow`` the least magnitude that rounds (to
    nearest, ties to even) beyond the largest finite value.
    """

    unit_roundoff: float
    mantissa_bits: int
    min_normal: float
    overflow: float


@dataclass(frozen=True, slots=True)
class Bounds:
    """The bounds of the metrics that count elements, for one dtype.

    Args:
        small_value: An element is *small* where the golden magnitude is at most this, else *normal*.
        atol: The absolute error that a small element may have in ``abs_err_ratio``.
        small_atol: The absolute error that a small element may have in ``small_value_err_ratio``.
        rtol: The relative error that a normal element may have in ``rel_err_ratio``.
        ulp: The error, in ULP, above which ``ulp_error_proportion`` counts an element.
        tail: The relative error above which ``tail_share`` counts an element.
        ulp_floor: Below this share of the output's own scale, the unit in the last place is that of this floor, so
            that cancellation does not count against the result.
        ulp_least: A magnitude below which the unit in the last place is that of this magnitude.
        tail_noise: The greatest error that says nothing of a small element; 0: what dtype and scale give.
        shared_floor: Below this share of the output's own scale an element has no part in ``shared_error``.
    """

    small_value: float
    atol: float
    small_atol: float
    rtol: float
    ulp: float
    tail: float
    ulp_floor: float = 0.0
    ulp_least: float = 0.0
    tail_noise: float = 0.0
    shared_floor: float = 0.0


def family(dtype: torch.dtype) -> Family:
    """Return the kind of number that ``dtype`` holds; values of different families are never comparable."""
    if dtype.is_complex:
        return "complex"
    if dtype.is_floating_point:
        return "float"
    return "bool" if dtype == torch.bool else "int"


def real_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype of one component: that of the real part of a complex dtype, any other unchanged."""
    return _REAL_OF_COMPLEX.get(dtype, dtype)


@cache
def float_format(dtype: torch.dtype) -> FloatFormat:
    """Return the format of a floating-point or complex ``dtype`` (of its components)."""
    dtype = real_dtype(dtype)
    info = torch.finfo(dtype)
    step = _step_above_one(dtype) if dtype.itemsize == 1 else info.eps
    last_step = math.ldexp(step, math.frexp(info.max)[1] - 1)
    return FloatFormat(step / 2, round(-math.log2(step)), info.smallest_normal, info.max + last_step / 2)


def _step_above_one(dtype: torch.dtype) -> float:
    """Return the distance from 1.0 to the next value of an 8-bit format; torch's eps of float8_e5m2fnuz is wrong."""
    values = torch.arange(256, dtype=torch.uint8).view(dtype).double()
    return float(values[values > 1].min()) - 1


@cache
def msprobe_bounds(dtype: torch.dtype) -> Bounds:
    """Return msprobe's limits for a dtype: float16 and bfloat16 have their own, all others those of float32.

    Only the ULP bound of float8 is 1, as in the 16-bit formats.

    Source: the tables of mindstudio-probe 1.2.2 (absolute threshold, benchmark and ULP comparison) as its code has
    them; its documentation gives 2^-16 for the ``atol`` of bfloat16.

    Args:
        dtype: The target's dtype.

    Returns:
        The bounds.
    """
    real = real_dtype(dtype)
    if not real.is_floating_point:
        return Bounds(0, 0, 0, 0, 0, 0)
    # docs/standards-reference.md, "Where the constants come from".
    tail = min(64 * max(roundoffs_allowed(real), 1) * float_format(real).unit_roundoff, 0.5)
    if real == torch.float16:
        return Bounds(2**-10, 2**-16, 1e-16, 2**-10, 1, tail)
    if real == torch.bfloat16:
        return Bounds(2**-10, 1e-16, 1e-16, 2**-8, 1, tail)
    return Bounds(2**-20, 2**-30, 2**-30, 2**-20, 1 if real.itemsize == 1 else 32, tail)


def roundoffs_allowed(dtype: torch.dtype) -> float:
    """Return the relative error, in unit roundoffs, that a good result may owe to its order of summation alone.

    Eight for float32 and float64, whose partial sums are rounded in the format itself. For all narrower formats sums
    are kept in float32 and rounded once, which gives at most 1/sqrt(3) = 0.58 in the root mean square. Both numbers are
    in ``docs/standards-reference.md``, "Where the constants come from".
    """
    return 8.0 if real_dtype(dtype) in (torch.float32, torch.float64) else 0.6
