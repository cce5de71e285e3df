"""A call cut into blocks: the same operation on parts of its arguments gives parts of its result."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import torch

from pytest_msprobe.engine.replay.calls.arguments import Arguments
from pytest_msprobe.engine.values.pytree import map_with_paths


@dataclass(frozen=True, slots=True)
class Cut:
    """Where a call is cut: ``dim`` of its only result, of this ``shape``, and of each argument in ``inputs``, by path.

    A block takes the same range of all of them, and every other argument whole. So the gradient of a cut argument is
    cut as it is, and that of a whole one is the sum over the blocks. The call may write to those in ``written``.

    ``is_reduced``: of a result of this shape the call makes one number, by its argument ``reduction``. A block gives
    the sum of its part. ``windows``: how many elements the windows on an argument have, by its path.
    ``is_feature``: the slices are features, such as columns of a weight, and no rows of a batch.
    """

    shape: tuple[int, ...]
    dim: int
    inputs: Mapping[str, int]
    written: tuple[str, ...] = ()
    is_reduced: bool = False
    windows: Mapping[str, int] = field(default_factory=dict)
    is_feature: bool = False

    @property
    def result(self) -> tuple[int, ...]:
        """The shape of what the call returns."""
        return () if self.is_reduced else self.shape

    @property
    def length(self) -> int:
        """How many slices there are, of which a block has at least one."""
        return self.shape[self.dim]

    def ranges(self, size: int) -> Iterator[tuple[int, int]]:
        """Yield start and length of each block of at most ``size`` slices."""
        for start in range(0, self.length, size):
            yield start, min(size, self.length - start)

    def arguments(self, arguments: Arguments, start: int, size: int) -> Arguments:
        """Return the arguments of a block: dense parts of what is cut."""

        def part(path: str, leaf: Any) -> Any:
            dim = self.inputs.get(path)
            return leaf if dim is None else block_of(leaf, dim, start, size)

        args = map_with_paths(part, arguments.args, "args")
        kwargs = map_with_paths(part, arguments.kwargs, "kwargs") | ({"reduction": "sum"} if self.is_reduced else {})
        return replace(arguments, args=args, kwargs=kwargs, tied=frozenset())


def block_of(tensor: torch.Tensor, dim: int, start: int, size: int) -> torch.Tensor:
    """Return a part of a tensor, as a view where its elements lie side by side."""
    part = tensor.detach().narrow(dim, start, size)
    # A copy that keeps strides would be as large as the tensor.
    return part if dim == 0 and tensor.is_contiguous() else part.contiguous()


#: Path and value of each argument by its parameter's name.
Given: TypeAlias = Mapping[str, tuple[str, Any]]

#: Gives the cuts of a call.
Rule: TypeAlias = Callable[[Given], Iterator[Cut]]


def is_index(tensor: torch.Tensor) -> bool:
    """Return whether a tensor holds whole numbers that may be indices, or bools."""
    return tensor.dtype in (torch.int64, torch.int32, torch.bool)


def tensors_in(given: Given) -> list[tuple[str, torch.Tensor]]:
    """Return paths and values of the arguments that are tensors."""
    return [(path, value) for path, value in given.values() if isinstance(value, torch.Tensor)]


def tensor_in(given: Given, name: str) -> tuple[str, torch.Tensor] | None:
    """Return path and value of an argument that is a tensor; None of any other."""
    path, value = given.get(name, ("", None))
    return (path, value) if isinstance(value, torch.Tensor) else None
