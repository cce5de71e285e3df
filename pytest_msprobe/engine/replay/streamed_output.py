"""Statistics and errors of an output, gathered while golden's blocks go by."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import torch

from msprobe_standards import Standard
from msprobe_standards.blocks import BlockMeasure, mean_magnitude
from msprobe_standards.metrics import bit_equal

ScaleOf = Callable[[str], float]
"""Returns the mean magnitude that the errors of an output relate to, by its path."""


@dataclass(frozen=True, slots=True)
class Part:
    """An output to be judged: its path, the target's values, and where it is cut; None of a sum over the blocks."""

    path: str
    target: torch.Tensor
    dim: int | None
    standard: Standard

    def at(self, start: int) -> tuple[int, ...]:
        """Return the index in the output at which a block begins."""
        return tuple(start if dim == self.dim else 0 for dim in range(self.target.dim()))

    def block(self, values: torch.Tensor, start: int) -> torch.Tensor:
        """Return the target's values at the place of a block."""
        return self.target if self.dim is None else self.target.narrow(self.dim, start, values.shape[self.dim])

    def measure(self, scale: float) -> BlockMeasure:
        """Return what measures this output."""
        dtype = self.target.dtype
        return BlockMeasure(self.target.shape, dtype, self.standard.wanted, self.standard.bounds(dtype), scale)


@dataclass
class StreamedOutput:
    """Measurements of an output over all blocks. ``is_equal``: bit by bit, and it was not measured.

    ``greatest`` is the greatest magnitude of golden, 0 of what is no gradient.
    """

    part: Part
    scale_of: ScaleOf
    of_baseline: BlockMeasure | None = None
    is_equal: bool = True
    golden_dtype: torch.dtype = torch.float32
    greatest: float = 0.0
    sums: list[torch.Tensor] = field(default_factory=list)

    @property
    def sum(self) -> torch.Tensor:
        """The sum over the blocks so far, in golden's dtype."""
        return self.sums[0].to(self.golden_dtype)

    @cached_property
    def scale(self) -> float:
        """The mean magnitude that errors relate to: golden's own of a sum, which is there as a whole."""
        return mean_magnitude(self.sum) if self.part.dim is None else self.scale_of(self.part.path)

    @cached_property
    def measured(self) -> BlockMeasure:
        """Return what measures the output; its scale is computed once there is something to measure."""
        return self.part.measure(self.scale)

    def add(self, golden: torch.Tensor, start: int, *, is_equal: bool) -> bool:
        """Add a block, and return whether it could be added.

        It cannot where those before were equal, and so not measured, and it is not.

        ``is_equal``: it is not known yet that the output differs somewhere.
        """
        part, self.golden_dtype = self.part, golden.dtype
        if part.dim is None:
            self.sums[:] = [golden.double() if not self.sums else self.sums[0].add_(golden)]
            return True
        target = part.block(golden, start)
        if part.path.startswith("grad."):
            self.greatest = max(self.greatest, _greatest(golden))
        was_equal = self.is_equal and is_equal and part.standard.exact_passes
        self.is_equal = was_equal and bit_equal(target, golden)
        if was_equal and not self.is_equal and start:
            return False
        if not self.is_equal:
            self.measured.add(part.at(start), target, golden)
        return True

    def add_baseline(self, baseline: torch.Tensor, golden: torch.Tensor, start: int) -> None:
        """Add a block of the baseline, if it is a result of the target's kind."""
        if baseline.shape == golden.shape and baseline.dtype == self.part.target.dtype:
            self.of_baseline = self.of_baseline or self.part.measure(self.scale)
            self.of_baseline.add(self.part.at(start), baseline, golden)

    def add_sum(self) -> None:
        """Add the sum over all blocks."""
        part, golden = self.part, self.sum
        self.greatest = _greatest(golden)
        self.is_equal = part.standard.exact_passes and bit_equal(part.target, golden)
        if not self.is_equal:
            self.measured.add(part.at(0), part.target, golden)


def _greatest(golden: torch.Tensor) -> float:
    """Return the greatest magnitude, infinite where there is a NaN: no such gradient is rounding alone."""
    if not golden.numel():
        return 0.0
    # Without a copy of all magnitudes.
    low, high = (float(end) for end in golden.aminmax())
    return math.inf if math.isnan(low) else max(-low, high)
