"""Axes in another order, another shape of the same elements, and some of the elements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_msprobe.extensions.transformations.step import (
    ALL_KEPT,
    NONE_KEPT,
    CallTensors,
    Shape,
    StepError,
    axis_of,
    fields,
    integer,
    integers,
)

if TYPE_CHECKING:
    import torch

    from pytest_msprobe.yaml_with_lines import Part


@dataclass(frozen=True)
class Transpose:
    """Two axes change places."""

    axes: tuple[int, int]

    @classmethod
    def read(cls, part: Part) -> Transpose:
        """Read ``transpose``. Raises OptionError."""
        axes = integers(part)
        if len(axes) != 2:
            raise part.refuse("transpose takes the two axes that change places, as in [0, 1]")
        return cls((axes[0], axes[1]))

    @property
    def says(self) -> str:
        """Return what it does to a tensor."""
        return f"transposed in axes {self.axes[0]} and {self.axes[1]}"

    @property
    def keeps(self) -> frozenset[str]:
        """All statistics."""
        return ALL_KEPT

    @property
    def files(self) -> Sequence[Path]:
        """No files."""
        return ()

    def shape(self, shape: Shape) -> Shape:
        """Return the shape with two sizes in each other's place."""
        first, second = (axis_of(axis, shape) for axis in self.axes)
        sizes = list(shape)
        sizes[first], sizes[second] = sizes[second], sizes[first]
        return tuple(sizes)

    def apply(self, tensor: torch.Tensor, call: CallTensors) -> torch.Tensor:
        """Return the transposed tensor."""
        self.shape(tuple(tensor.shape))
        return tensor.transpose(*self.axes)


@dataclass(frozen=True)
class Permute:
    """All axes in another order: axis ``order[i]`` becomes axis ``i``."""

    order: tuple[int, ...]

    @classmethod
    def read(cls, part: Part) -> Permute:
        """Read ``permute``. Raises OptionError."""
        order = integers(part)
        if sorted(order) != list(range(len(order))):
            raise part.refuse("permute takes each axis once, counted from 0, as in [0, 2, 1]")
        return cls(order)

    @property
    def says(self) -> str:
        """Return what it does to a tensor."""
        return f"permuted to axes {list(self.order)}"

    @property
    def keeps(self) -> frozenset[str]:
        """All statistics."""
        return ALL_KEPT

    @property
    def files(self) -> Sequence[Path]:
        """No files."""
        return ()

    def shape(self, shape: Shape) -> Shape:
        """Return the sizes in the new order."""
        if len(shape) != len(self.order):
            raise StepError(f"an order of {len(self.order)} axes does not fit {list(shape)}")
        return tuple(shape[axis] for axis in self.order)

    def apply(self, tensor: torch.Tensor, call: CallTensors) -> torch.Tensor:
        """Return the tensor with its axes in the new order."""
        self.shape(tuple(tensor.shape))
        return tensor.permute(self.order)


@dataclass(frozen=True)
class Reshape:
    """The elements in their order in another shape; one size may be -1, which is found."""

    sizes: tuple[int, ...]

    @classmethod
    def read(cls, part: Part) -> Reshape:
        """Read ``reshape``. Raises OptionError."""
        sizes = integers(part)
        if any(size < -1 for size in sizes) or sizes.count(-1) > 1:
            raise part.refuse("reshape takes sizes, of which one may be -1, as in [2, -1, 64]")
        return cls(sizes)

    @property
    def says(self) -> str:
        """Return what it does to a tensor."""
        return f"reshaped to {list(self.sizes)}"

    @property
    def keeps(self) -> frozenset[str]:
        """All statistics."""
        return ALL_KEPT

    @property
    def files(self) -> Sequence[Path]:
        """No files."""
        return ()

    def shape(self, shape: Shape) -> Shape:
        """Return the new shape."""
        count, known = math.prod(shape), math.prod(size for size in self.sizes if size >= 0)
        rest = count // known if known else 0
        sizes = tuple(rest if size < 0 else size for size in self.sizes)
        if math.prod(sizes) != count:
            raise StepError(f"{list(shape)} has {count} elements, which do not fit into {list(self.sizes)}")
        return sizes

    def apply(self, tensor: torch.Tensor, call: CallTensors) -> torch.Tensor:
        """Return the reshaped tensor."""
        return tensor.reshape(self.shape(tuple(tensor.shape)))


@dataclass(frozen=True)
class Slice:
    """The elements from ``start`` to before ``stop`` along an axis, every ``step``-th; as Python counts them."""

    axis: int
    start: int | None = None
    stop: int | None = None
    step: int = 1

    @classmethod
    def read(cls, part: Part) -> Slice:
        """Read ``slice``. Raises OptionError."""
        found = fields(part, ("axis", "start", "stop", "step"), required=("axis",))
        return cls(
            integer(found["axis"]),
            integer(found["start"]) if "start" in found else None,
            integer(found["stop"]) if "stop" in found else None,
            integer(found["step"], least=1) if "step" in found else 1,
        )

    @property
    def says(self) -> str:
        """Return what it does to a tensor."""
        start, stop = ("" if each is None else each for each in (self.start, self.stop))
        every = f":{self.step}" if self.step > 1 else ""
        return f"sliced [{start}:{stop}{every}] along axis {self.axis}"

    @property
    def keeps(self) -> frozenset[str]:
        """No statistics."""
        return NONE_KEPT

    @property
    def files(self) -> Sequence[Path]:
        """No files."""
        return ()

    def shape(self, shape: Shape) -> Shape:
        """Return the shape of the slice, which must hold something."""
        axis = axis_of(self.axis, shape)
        size = len(range(*slice(self.start, self.stop, self.step).indices(shape[axis])))
        if not size and shape[axis]:
            raise StepError(f"nothing of {list(shape)} is in this slice")
        return (*shape[:axis], size, *shape[axis + 1 :])

    def apply(self, tensor: torch.Tensor, call: CallTensors) -> torch.Tensor:
        """Return the slice."""
        self.shape(tuple(tensor.shape))
        axis = axis_of(self.axis, tuple(tensor.shape))
        return tensor[(slice(None),) * axis + (slice(self.start, self.stop, self.step),)]
