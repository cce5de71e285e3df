"""The error that neighbouring values share: what distinguishes a coarse approximation from rounding.

A result that is computed in a wider format and rounded once equals the rounded golden one but for elements so close to
the middle of two values that the last bits of the wider format decide. Steps in a narrow format round most elements
the other way, up and down by turns, since their errors change with every bit. An approximation errs by a smooth
function of the value: elements with neighbouring golden values are wrong in the same direction.
"""

from __future__ import annotations

import math

import numpy as np
import torch

from msprobe_standards.chunking import chunks, dot
from msprobe_standards.dtypes import float_format, real_dtype
from msprobe_standards.tensor_layouts import as_array

# docs/standards-reference.md, "Where the constants come from", has the sources. As many as 16 bits can hold: more
# elements would share the cells of these.
_SAMPLE = 65536
# Σp / √Σp² of n numbers is at most √n, and so exceeds 7 for no fewer than these.
_LEAST_PRODUCTS = 50
# In unit roundoffs. A part in a thousand is 2 in float16; cut to 1, as one rounding errs at most, it is not found. Cut
# to 8, a few elements of a tail decide, and hide gelu's other formula in bfloat16.
_LARGEST = 2.0
# Twice the floor of float32, in which sums are kept. With 64, a part in a thousand of a power passes in float16.
_NOISE = 16


def shared_error(
    target: torch.Tensor, golden: torch.Tensor, dtype: torch.dtype, floor: float = 0.0
) -> tuple[float, float]:
    """Return the error that neighbouring values share, in unit roundoffs, and its size in standard errors.

    Both are real or complex floating-point tensors of one shape, ``dtype`` is the target's own. Elements with the same
    rounded golden value v make a cell, where |v| is at least ``floor`` times its mean over all elements; a cell's error
    e is the mean of (target - v) / |v| in unit roundoffs, each at most 2 and 0 where it is noise of float32 sums. Of n
    cells, in the order of v, those with an error are chained; the results are √(Σ eᵢ eᵢ₊₁ / n), or 0 where the sum is
    negative, and Σ eᵢ eᵢ₊₁ / √(Σ (eᵢ eᵢ₊₁)²). Where the errors of cells go up and down independently, so do the
    products, and the second exceeds 7 with a probability below 3e-11 (Hoeffding). Large tensors are sampled evenly;
    fewer than 50 products cannot exceed 7, and give 0.
    """
    return shared_error_of(_sample(target), _sample(golden), dtype, floor)


@np.errstate(all="ignore")
def shared_error_of(
    target: torch.Tensor, golden: torch.Tensor, dtype: torch.dtype, floor: float = 0.0
) -> tuple[float, float]:
    """Return what `shared_error` does, of the real numbers of elements that were sampled already, flat."""
    result, cast = target.to(real_dtype(dtype)), golden.to(real_dtype(dtype))
    # Most results are rounded once, and this is all that they pay for.
    if np.count_nonzero(result.ne(cast).numpy()) <= _LEAST_PRODUCTS:
        return 0.0, 0.0
    rounded = as_array(cast.double())
    error = as_array(result.double()) - rounded
    finite = np.isfinite(error)
    error, rounded = error[finite], rounded[finite]
    size = np.abs(rounded)
    scale = float(size.sum()) / max(size.size, 1)
    roundoff, least = float_format(dtype).unit_roundoff, float_format(dtype).min_normal
    error[np.abs(error) <= _NOISE * min(roundoff, 2**-24) * scale] = 0.0
    relative = np.clip(error / np.maximum(size, least) / roundoff, -_LARGEST, _LARGEST)
    large = size >= floor * scale
    cells, cell = np.unique(rounded[large], return_inverse=True)
    means = np.bincount(cell, relative[large]) / np.bincount(cell)
    means = means[means != 0]
    products = means[1:] * means[:-1]
    if products.size < _LEAST_PRODUCTS:
        return 0.0, 0.0
    total = float(products.sum())
    return math.sqrt(max(total, 0.0) / cells.size), total / math.sqrt(dot(products, products))


def sample_step(count: int) -> int:
    """Return at which distance elements are sampled, of so many in index order, the first one among them."""
    # An odd step meets every column of a matrix whose rows are a power of two long.
    return count // _SAMPLE | 1


def _sample(values: torch.Tensor) -> torch.Tensor:
    """Return the real numbers of elements that are evenly spread, flat."""
    step = sample_step(values.numel())
    if values.is_contiguous():
        values = values.view(-1)[::step]
    else:
        values = torch.cat([part[-offset % step :: step] for offset, part, _ in chunks(values, values)])
    return torch.view_as_real(values).reshape(-1) if values.is_complex() else values
