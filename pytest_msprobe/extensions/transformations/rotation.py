"""Products with a matrix: rotations, as QuaRot and SpinQuant put them into weights, and any other matrix."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_msprobe.errors import OptionError
from pytest_msprobe.extensions.transformations.step import NONE_KEPT, NORM_KEPT, CallTensors, Shape, StepError
from pytest_msprobe.extensions.transformations.step_fields import array_file, choice, fields, flag

if TYPE_CHECKING:
    import torch

    from pytest_msprobe.extensions.transformations.array_file import ArrayFile
    from pytest_msprobe.yaml_with_lines import Part

_KEYS = ("by", "on", "transposed")
# A matrix stored in bfloat16 is orthogonal to some thousandths, one that is scaled by 1.01 is off by 0.02.
_TOLERANCE = 0.01
_DRAWS = 4


@dataclass(frozen=True)
class Product:
    """The tensor, as matrices in its last two axes, times a matrix: ``x @ Q``, or ``Q @ x`` on the left.

    On the right, a tensor of one axis is a row. ``is_rotation`` demands that the matrix is orthogonal.
    """

    matrix: ArrayFile
    is_left: bool = False
    is_transposed: bool = False
    is_rotation: bool = False

    @classmethod
    def of_rotation(cls, part: Part) -> Product:
        """Read ``rotate``. Raises OptionError, also where the matrix is not orthogonal."""
        step = cls._read(part, is_rotation=True)
        if not step._is_orthogonal:
            raise OptionError(
                f"{step.matrix.path}: not orthogonal: Q times its transpose is not the identity",
                file=step.matrix.place,
                remedy="normalise it, or write multiply in place of rotate",
            )
        return step

    @classmethod
    def of_any(cls, part: Part) -> Product:
        """Read ``multiply``. Raises OptionError."""
        return cls._read(part, is_rotation=False)

    @classmethod
    def _read(cls, part: Part, *, is_rotation: bool) -> Product:
        found = fields(part, _KEYS, required=("by",))
        is_left = "on" in found and choice(found["on"], ("left", "right")) == "left"
        step = cls(array_file(found["by"]), is_left, "transposed" in found and flag(found["transposed"]), is_rotation)
        return step.checked()

    def checked(self) -> Product:
        """Return the step. Raises OptionError where its file holds no matrix."""
        if self.matrix.tensor.ndim != 2:
            raise OptionError(
                f"{self.matrix.path}: has shape {list(self.matrix.tensor.shape)}, and a matrix has two axes",
                file=self.matrix.place,
            )
        return self

    @property
    def says(self) -> str:
        """What it does to a tensor."""
        verb = "rotated" if self.is_rotation else "multiplied"
        transposed = " transposed" if self.is_transposed else ""
        return f"{verb} by {self.matrix.name}{transposed}{' on the left' if self.is_left else ''}"

    @property
    def keeps(self) -> frozenset[str]:
        """The norm, where the matrix is orthogonal."""
        return NORM_KEPT if self._is_orthogonal else NONE_KEPT

    @property
    def files(self) -> Sequence[Path]:
        """The matrix's file."""
        return (self.matrix.path,)

    def shape(self, shape: Shape) -> Shape:
        """Return the shape of the product."""
        rows, columns = self._sizes
        if self.is_left:
            if len(shape) < 2 or shape[-2] != columns:
                raise StepError(f"a matrix of {rows} x {columns} does not fit {list(shape)} on the left")
            return (*shape[:-2], rows, shape[-1])
        if not shape or shape[-1] != rows:
            raise StepError(f"a matrix of {rows} x {columns} does not fit {list(shape)} on the right")
        return (*shape[:-1], columns)

    def apply(self, tensor: torch.Tensor, call: CallTensors) -> torch.Tensor:
        """Return the product, in float64."""
        import torch

        self.shape(tuple(tensor.shape))
        dtype = torch.complex128 if tensor.is_complex() else torch.float64
        matrix = (self.matrix.tensor.mT if self.is_transposed else self.matrix.tensor).to(dtype)
        return matrix @ tensor.to(dtype) if self.is_left else tensor.to(dtype) @ matrix

    @property
    def _sizes(self) -> tuple[int, int]:
        rows, columns = self.matrix.tensor.shape
        return (columns, rows) if self.is_transposed else (rows, columns)

    @cached_property
    def _is_orthogonal(self) -> bool:
        """Whether random vectors come back: Q' (Q v) = v."""
        import torch

        rows, columns = self.matrix.tensor.shape
        if rows != columns:
            return False
        matrix = self.matrix.tensor.double()
        draws = torch.randn(columns, _DRAWS, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        return bool(((matrix.mT @ (matrix @ draws) - draws).abs() <= _TOLERANCE * (1 + draws.abs())).all())
