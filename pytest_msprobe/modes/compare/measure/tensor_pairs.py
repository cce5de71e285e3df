"""Two recorded tensors compared element by element, chunk by chunk: memory is that of the pair and a few chunks.

Those whose elements do not lie side by side, and float8, are copied first.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from msprobe_standards import chunks, measure
from msprobe_standards.dtypes import family, float_format
from msprobe_standards.metrics import bit_equal
from msprobe_standards.tensor_layouts import as_array
from pytest_msprobe.modes.compare.measure.accumulate import EXACT_INTEGERS, LENGTH, Measured, Precision, walk
from pytest_msprobe.modes.compare.measure.recorded_arrays import BFLOAT16

if TYPE_CHECKING:
    from msprobe_hooks.dump.npy import Array

# Relative errors from below float32's rounding, 6e-8, to the size of the value.
_DECADES = torch.logspace(-9, 0, 10, dtype=torch.float64)
_BINS = len(_DECADES) + 2


def coarser(a: torch.dtype, b: torch.dtype) -> torch.dtype:
    """Return the floating-point dtype with fewer significant bits."""
    return min(a, b, key=lambda dtype: float_format(dtype).mantissa_bits)


def measure_tensors(target: torch.Tensor, golden: torch.Tensor) -> Measured:
    """Measure two CPU tensors of one shape; complex numbers count as two elements each.

    Equal NaN and inf (of the same sign) in the same places have no error; any other is counted in
    ``nonfinite_mismatch`` and makes every error infinite. The relative error of an element is |t - g| / |g|, 0 where
    both are equal, infinite where only the golden one is 0. The cosine is 1 where both are all zero, 0 where only one
    is, and absent for single elements, whose angle says nothing. Raises ValueError for differing shapes.
    """
    if target.shape != golden.shape:
        raise ValueError(f"target has shape {tuple(target.shape)}, golden has {tuple(golden.shape)}")
    width = 2 if target.is_complex() or golden.is_complex() else 1
    floats = [x.dtype for x in (target, golden) if x.dtype.is_floating_point or x.dtype.is_complex]
    form = float_format(coarser(floats[0], floats[1])) if len(floats) == 2 else None
    precision = None if form is None else Precision(form.mantissa_bits, form.min_normal)
    arrays = [_array(tensor.detach().resolve_conj().resolve_neg(), width) for tensor in (target, golden)]
    measured = walk(arrays[0], arrays[1], precision, width).measured(tuple(target.shape))
    reached = measured.max_golden + measured.metrics["max_abs_err"]
    if not floats and family(target.dtype) == family(golden.dtype) and reached >= EXACT_INTEGERS:
        exact = measure(target, golden)
        is_unseen = exact["max_abs_err"] and measured.worst is None
        worst = exact.worst_index if is_unseen else measured.worst
        return replace(measured, metrics=measured.metrics | {"max_abs_err": exact["max_abs_err"]}, worst=worst)
    return measured


def _array(tensor: torch.Tensor, width: int) -> Array:
    """Return the elements one after the other, of complex numbers their parts."""
    if width == 2:
        tensor = torch.view_as_real(
            tensor if tensor.is_complex() else torch.complex(tensor.double(), tensor.double() * 0)
        )
    tensor = tensor.reshape(-1)
    if tensor.dtype is torch.bfloat16:
        return as_array(tensor.view(torch.int16)).view(BFLOAT16)
    return as_array(tensor.float() if tensor.dtype.is_floating_point and tensor.itemsize == 1 else tensor)


def are_equal(target: torch.Tensor, golden: torch.Tensor) -> bool:
    """Return quickly whether two tensors of one shape are of one dtype and have the same elements; NaN gives a "no"."""
    return target.dtype == golden.dtype and all(
        bit_equal(mine, other) for _, mine, other in chunks(target, golden, length=LENGTH)
    )


def error_histogram(target: torch.Tensor, golden: torch.Tensor) -> tuple[int, ...]:
    """Count the elements of two CPU tensors of one shape by relative error |t - g| / |g|.

    The first count is of equal elements (NaN against NaN and inf against the same inf among them), the next of errors
    up to 1e-9, then up to 1e-8 and so on to 1; the last is of those above 1, NaN or inf on one side among them.
    """
    counts = torch.zeros(_BINS, dtype=torch.int64)
    for _, target_part, golden_part in chunks(target.detach(), golden.detach()):
        if target_part.is_complex() or golden_part.is_complex():
            target_part, golden_part = target_part.to(torch.complex128), golden_part.to(torch.complex128)
        else:
            target_part, golden_part = target_part.double(), golden_part.double()
        equal = (target_part == golden_part) | (target_part.isnan() & golden_part.isnan())
        error = ((target_part - golden_part).abs() / golden_part.abs()).nan_to_num(nan=float("inf"))
        place = torch.bucketize(error, _DECADES) + 1
        counts += torch.bincount(place.masked_fill(equal, 0).flatten(), minlength=_BINS)
    return tuple(counts.tolist())
