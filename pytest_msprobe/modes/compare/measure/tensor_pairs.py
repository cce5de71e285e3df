"""Two recorded tensors compared element by element, chunk by chunk: memory is that of the pair and a few chunks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from msprobe_standards import chunks, measure
from msprobe_standards.dtypes import family, float_format, real_dtype
from msprobe_standards.metrics import bit_equal
from pytest_msprobe.modes.compare.measure.accumulate import (
    EXACT_INTEGERS,
    LENGTH,
    Measured,
    Precision,
    Walk,
    array_parts,
)

if TYPE_CHECKING:
    from pytest_msprobe.modes.compare.measure.chunk import Floats


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
    target, golden = target.detach().resolve_conj().resolve_neg(), golden.detach().resolve_conj().resolve_neg()
    measured = _walk(target, golden).measured(tuple(target.shape))
    are_integers = not (target.dtype.is_floating_point or target.dtype.is_complex)
    reached = measured.max_golden + measured.metrics["max_abs_err"]
    if are_integers and family(target.dtype) == family(golden.dtype) and reached >= EXACT_INTEGERS:
        exact = measure(target, golden)
        is_unseen = exact["max_abs_err"] and measured.worst is None
        worst = exact.worst_index if is_unseen else measured.worst
        return replace(measured, metrics=measured.metrics | {"max_abs_err": exact["max_abs_err"]}, worst=worst)
    return measured


def are_equal(target: torch.Tensor, golden: torch.Tensor) -> bool:
    """Return quickly whether two tensors of one shape are of one dtype and have the same elements; NaN gives a "no"."""
    return target.dtype == golden.dtype and all(
        bit_equal(mine, other) for _, mine, other in chunks(target, golden, length=LENGTH)
    )


def _walk(target: torch.Tensor, golden: torch.Tensor) -> Walk:
    width = 2 if target.is_complex() or golden.is_complex() else 1
    length = min(LENGTH // width, max(target.numel(), 1))
    floats = [real_dtype(x.dtype) for x in (target, golden) if x.dtype.is_floating_point or x.dtype.is_complex]
    is_narrow = len(floats) == 2 and max(dtype.itemsize for dtype in floats) <= torch.float32.itemsize
    dtype = torch.float32 if is_narrow else torch.float64
    buffers = [torch.empty(length * width, dtype=dtype) for _ in range(2)]

    def load(part: torch.Tensor, buffer: torch.Tensor) -> Floats:
        if width == 2:
            part = torch.view_as_real(part if part.is_complex() else torch.complex(part.double(), part.double() * 0))
            part = part.reshape(-1)
        loaded = part if part.dtype == dtype else buffer[: part.numel()].copy_(part)
        return loaded.numpy()

    def parts() -> Iterator[tuple[int, Floats, Floats]]:
        if target.dtype == golden.dtype == dtype and target.is_contiguous() and golden.is_contiguous():
            yield from array_parts(target.numpy(), golden.numpy())
            return
        for offset, *both in chunks(target, golden, length=length):
            mine, other = map(load, both, buffers)
            yield offset * width, mine, other

    if len(floats) < 2:
        return Walk(parts, None, length * width, width)
    form = float_format(coarser(*floats))
    return Walk(parts, Precision(form.mantissa_bits, form.min_normal), length * width, width)
