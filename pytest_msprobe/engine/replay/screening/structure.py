"""Which calls are matrix products, with what is what among their arguments."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from msprobe_standards.layouts import is_plain
from pytest_msprobe.engine.replay.arguments import Arguments
from pytest_msprobe.engine.replay.screening.clearing import SCREENED_DTYPES
from pytest_msprobe.engine.replay.screening.product import Product
from pytest_msprobe.engine.replay.screening.walks import TILE
from pytest_msprobe.engine.values.strides import overlaps


@dataclass(frozen=True, slots=True)
class _Form:
    """An operation's tensors by its ``parameters``' names, in order, and how many ``dimensions`` both factors have.

    Without a number of dimensions the left one may have a batch, or both the same.
    """

    parameters: tuple[str, ...]
    left: str
    right: str
    added: str = ""
    dimensions: int | None = None

    @property
    def is_scaled(self) -> bool:
        """Whether it takes ``alpha`` and ``beta``."""
        return bool(self.added and self.dimensions)


_FORMS: Mapping[str, _Form] = {
    "linear": _Form(("input", "weight", "bias"), "input", "weight", "bias"),
    "matmul": _Form(("input", "other"), "input", "other"),
    "__matmul__": _Form(("input", "other"), "input", "other"),
    "mm": _Form(("input", "mat2"), "input", "mat2", dimensions=2),
    "bmm": _Form(("input", "mat2"), "input", "mat2", dimensions=3),
    "addmm": _Form(("input", "mat1", "mat2"), "mat1", "mat2", "input", 2),
    "baddbmm": _Form(("input", "batch1", "batch2"), "batch1", "batch2", "input", 3),
}

# Below, a screen has about as many elements to go over as the product has operations per tile.
_LEAST_SIDE, _LEAST_INNER = 2 * TILE, TILE


@dataclass(frozen=True, slots=True)
class Factor:
    """A factor: the path of its argument, its values, and whether the product takes the argument transposed."""

    path: str
    tensor: torch.Tensor
    is_transposed: bool = False

    def matrices(self, batch: int, values: torch.Tensor) -> torch.Tensor:
        """Return the factor, or its gradient, as (batch, rows, columns)."""
        matrix = values.reshape(batch, -1, values.shape[-1])
        return matrix.mT if self.is_transposed else matrix


@dataclass(frozen=True, slots=True)
class Structure:
    """A call that is ``alpha`` * ``left`` @ ``right`` + ``beta`` * ``added``, of ``batch`` products.

    ``shape`` is the result's, ``added`` the path and the values of what is added.
    """

    left: Factor
    right: Factor
    added: tuple[str, torch.Tensor] | None
    alpha: float
    beta: float
    batch: int
    shape: tuple[int, ...]

    @property
    def operations(self) -> int:
        """How many multiplications and additions the result takes."""
        return 2 * math.prod(self.shape) * self.left.tensor.shape[-1]

    @property
    def paths(self) -> frozenset[str]:
        """The paths of all tensors."""
        added = () if self.added is None else (self.added[0],)
        return frozenset((self.left.path, self.right.path, *added))

    def forward(self, result: torch.Tensor) -> list[Product]:
        """Return the products that the result of this call is to be."""
        left, right = (each.matrices(self.batch, each.tensor) for each in (self.left, self.right))
        results, added = self._matrices(result), self._added()
        return [Product(left[i], right[i], results[i], self.alpha, added[i], self.beta) for i in range(self.batch)]

    def backward(self, path: str, gradient: torch.Tensor, arriving: torch.Tensor) -> list[Product]:
        """Return the products that the gradient of a factor is to be: dA = dC Bᵀ, dB = Aᵀ dC."""
        came = self._matrices(arriving)
        left, right = (each.matrices(self.batch, each.tensor) for each in (self.left, self.right))
        if path == self.left.path:
            found = self.left.matrices(self.batch, gradient)
            return [Product(came[i], right[i].mT, found[i], self.alpha) for i in range(self.batch)]
        found = self.right.matrices(self.batch, gradient)
        return [Product(left[i].mT, came[i], found[i], self.alpha) for i in range(self.batch)]

    def _matrices(self, result: torch.Tensor) -> torch.Tensor:
        return result.reshape(self.batch, -1, self.shape[-1])

    def _added(self) -> Sequence[torch.Tensor | None]:
        """Return what is added to each product."""
        if self.added is None or self.added[1].dim() == 1:
            return [self.added and self.added[1]] * self.batch
        return list(self._matrices(self.added[1]))


def structure_of(operation: str, arguments: Arguments) -> Structure | None:
    """Return what product a call is; None for any other, and for one that is left to the exact check.

    Its tensors are dense, without overlap, of one float dtype, and large enough for a screen to be worth it.
    """
    form = _FORMS.get(operation)
    if form is None:
        return None
    given = _by_name(form, arguments)
    if given is None:
        return None
    alpha, beta = (given.pop(name)[1] if name in given else 1 for name in ("alpha", "beta"))
    if not all(type(number) in (int, float) and math.isfinite(number) for number in (alpha, beta)) or not alpha:
        return None
    if form.added in given and given[form.added][1] is None:
        del given[form.added]
    if not all(_is_screenable(value) for _, value in given.values()) or not {form.left, form.right} <= given.keys():
        return None
    if len({value.dtype for _, value in given.values()}) != 1:
        return None
    left, right = Factor(*given[form.left]), Factor(*given[form.right], is_transposed=operation == "linear")
    batch, shape = _shape(left, right, form.dimensions)
    added = given.get(form.added)
    if not shape or not _is_large(left, right) or (added is not None and not _fits(added[1], shape, form)):
        return None
    return Structure(left, right, added, float(alpha), float(beta), batch, shape)


def _by_name(form: _Form, arguments: Arguments) -> dict[str, tuple[str, Any]] | None:
    """Return path and value of each argument by its parameter's name; None where one is unknown."""
    args, kwargs, names = arguments.args, arguments.kwargs, form.parameters
    scalars = ("alpha", "beta") if form.is_scaled else ()
    if len(args) > len(names) or kwargs.keys() - {*names[len(args) :], *scalars}:
        return None
    found = {name: (f"args.{i}", value) for i, (name, value) in enumerate(zip(names, args, strict=False))}
    return found | {name: (f"kwargs.{name}", value) for name, value in kwargs.items()}


def _is_screenable(value: Any) -> bool:
    return (
        isinstance(value, torch.Tensor)
        and is_plain(value)
        and value.dtype in SCREENED_DTYPES
        and value.numel() > 0
        and not overlaps(value)
    )


def _shape(left: Factor, right: Factor, dimensions: int | None) -> tuple[int, tuple[int, ...]]:
    """Return the number of products and the result's shape; an empty one where the factors do not fit each other."""
    ours, theirs = left.tensor, right.tensor.mT if right.is_transposed and right.tensor.dim() == 2 else right.tensor
    if min(ours.dim(), theirs.dim()) < 2 or ours.shape[-1] != theirs.shape[-2]:
        return 0, ()
    if dimensions is not None and not ours.dim() == theirs.dim() == dimensions:
        return 0, ()
    shape = (*ours.shape[:-1], theirs.shape[-1])
    if theirs.dim() == 2:
        return 1, shape
    if right.is_transposed or ours.shape[:-2] != theirs.shape[:-2]:
        return 0, ()
    return math.prod(ours.shape[:-2]), shape


def _is_large(left: Factor, right: Factor) -> bool:
    rows = left.tensor.numel() // left.tensor.shape[-1]
    rows = rows if right.tensor.dim() == 2 else left.tensor.shape[-2]
    columns = right.tensor.shape[-2] if right.is_transposed else right.tensor.shape[-1]
    return min(rows, columns) >= _LEAST_SIDE and left.tensor.shape[-1] >= _LEAST_INNER


def _fits(added: torch.Tensor, shape: tuple[int, ...], form: _Form) -> bool:
    """Tell whether something can be added as it is: a row of the result's length, or a tensor of its shape."""
    return added.shape == shape[-1:] or (form.is_scaled and added.shape == shape)
