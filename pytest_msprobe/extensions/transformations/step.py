"""Base of a transformation's steps. torch is imported where a tensor is turned, and not before."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, Protocol

if TYPE_CHECKING:
    import torch

Side = Literal["target", "golden"]
SIDES: Final[tuple[Side, ...]] = ("target", "golden")
Shape = tuple[int, ...]

#: The statistics that a step does not change, by their names in `rows.STATISTICS`.
ALL_KEPT: Final = frozenset({"max", "min", "mean", "norm"})
NORM_KEPT: Final = frozenset({"norm"})
NONE_KEPT: Final[frozenset[str]] = frozenset()


class StepError(ValueError):
    """A step does not fit a tensor; the text says why, as a part of a sentence."""


class CallTensors(Protocol):
    """The other recorded tensors of the call that a value belongs to."""

    def tensor(self, place: str) -> torch.Tensor:
        """Return the tensor in a place of the call, such as ``input.1``. Raises StepError where there is none."""


class Step(Protocol):
    """One step of a transformation: a tensor in, a tensor out."""

    @property
    def says(self) -> str:
        """Return what it does to a tensor, after "target" or "golden": ``rotated by Q.npy``."""

    @property
    def keeps(self) -> frozenset[str]:
        """The statistics that a tensor has after the step as before it."""

    @property
    def files(self) -> Sequence[Path]:
        """The files that it reads."""

    def shape(self, shape: Shape) -> Shape:
        """Return the shape of what a tensor of a shape becomes. Raises StepError where the step does not fit."""

    def apply(self, tensor: torch.Tensor, call: CallTensors) -> torch.Tensor:
        """Return what a plain CPU tensor becomes; a step that computes does so in float64.

        Raises StepError where the step does not fit.
        """


def axis_of(axis: int, shape: Shape) -> int:
    """Return an axis counted from the first. Raises StepError where a tensor of this shape has none of that number."""
    if not -len(shape) <= axis < len(shape):
        raise StepError(f"there is no axis {axis} in shape {list(shape)}")
    return axis % len(shape)
