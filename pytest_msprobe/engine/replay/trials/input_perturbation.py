"""The golden side with inputs moved by one rounding unit: what its results move by is the call's own conditioning."""

from __future__ import annotations

from dataclasses import replace

import torch

from msprobe_standards.dtypes import float_format
from pytest_msprobe.engine.replay.calls.arguments import Arguments
from pytest_msprobe.engine.replay.calls.side import Run, Side
from pytest_msprobe.engine.replay.inputs.random_tensors import stream_seed
from pytest_msprobe.engine.replay.trials.memory_budget import fits_easily
from pytest_msprobe.engine.values.pytree import tensors_with_paths

#: How often inputs are moved: by chance one draw may hardly move a result. Where one element decides, both move it
#: by less than a sixteenth of a standard deviation once in 400 (normal distribution), one alone once in 20.
DRAWS = 2

# The graph of a call keeps about what went in and what came out.
_COPIES_PER_DRAW = 2
_WIDEST = 8  # bytes of an element in float64


def perturbed_side(golden: Side, seed: int, record: str, draw: int) -> Side:
    """Return the golden side with all that it is given, gradients that arrive included, moved by one rounding unit.

    Each part of a floating-point or complex number x becomes x (1 + u) or x (1 - u), u the unit roundoff of its
    recorded dtype; where golden computes in that dtype itself, a neighbour of x. Zeros and infinities stay.
    """
    generator = torch.Generator().manual_seed(stream_seed(seed, record, f"moved.{draw}"))

    def put(tensor: torch.Tensor) -> torch.Tensor:
        placed = golden.put(tensor)
        if placed.is_complex():
            _move(torch.view_as_real(placed), tensor.dtype.to_real(), generator)
        elif placed.is_floating_point():
            _move(placed, tensor.dtype, generator)
        return placed

    return replace(golden, put=put)


def _move(values: torch.Tensor, dtype: torch.dtype, generator: torch.Generator) -> None:
    signs = torch.empty_like(values).bernoulli_(0.5, generator=generator).mul_(2).sub_(1)
    if values.dtype == dtype:
        values.copy_(torch.where(values == 0, values, torch.nextafter(values, signs * torch.inf)))
    else:
        values.mul_(signs.mul_(float_format(dtype).unit_roundoff).add_(1))


def input_unit_roundoff(arguments: Arguments) -> float:
    """Return by how much inputs move, relative to themselves: the unit roundoff of the coarsest dtype, 0 for none."""
    computed = (dtype for dtype in arguments.tensor_dtypes if dtype.is_floating_point or dtype.is_complex)
    return max((float_format(dtype).unit_roundoff for dtype in computed), default=0.0)


def fits_perturbed_runs(arguments: Arguments, golden: Run) -> bool:
    """Return whether golden may be computed for perturbed inputs in addition to what a check holds."""
    tensors = (*arguments.tensors(), *tensors_with_paths(golden.output))
    return fits_easily(DRAWS * _COPIES_PER_DRAW * _WIDEST * sum(tensor.numel() for _, tensor in tensors))
