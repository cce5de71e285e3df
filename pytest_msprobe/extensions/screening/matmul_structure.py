"""Which calls are matrix products, with what is what among their arguments."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from msprobe_standards.tensor_layouts import is_plain
from pytest_msprobe.engine.replay.calls.arguments import Arguments
from pytest_msprobe.engine.values.strides import overlaps
from pytest_msprobe.extensions.screening.batched_matrix import Contraction, Layout, contraction
from pytest_msprobe.extensions.screening.config import SCREENED_DTYPES
from pytest_msprobe.extensions.screening.im2col import patches
from pytest_msprobe.extensions.screening.product import Product
from pytest_msprobe.extensions.screening.tile_sums import TILE


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


# What says how a convolution's windows lie.
_WINDOWS = ("stride", "padding", "dilation", "groups")

_FORMS: Mapping[str, _Form] = {
    "linear": _Form(("input", "weight", "bias"), "input", "weight", "bias"),
    "matmul": _Form(("input", "other"), "input", "other"),
    "__matmul__": _Form(("input", "other"), "input", "other"),
    "__rmatmul__": _Form(("input", "other"), "other", "input"),
    "einsum": _Form(("equation", "left", "right"), "left", "right"),
    "conv1d": _Form(("input", "weight", "bias", *_WINDOWS), "input", "weight", "bias"),
    "conv2d": _Form(("input", "weight", "bias", *_WINDOWS), "input", "weight", "bias"),
    "conv3d": _Form(("input", "weight", "bias", *_WINDOWS), "input", "weight", "bias"),
    "mm": _Form(("input", "mat2"), "input", "mat2", dimensions=2),
    "bmm": _Form(("input", "mat2"), "input", "mat2", dimensions=3),
    "addmm": _Form(("input", "mat1", "mat2"), "mat1", "mat2", "input", 2),
    "baddbmm": _Form(("input", "batch1", "batch2"), "batch1", "batch2", "input", 3),
}

# Below, a screen has about as many elements to go over as the product has operations per tile.
_LEAST_SIDE, _LEAST_INNER = 2 * TILE, TILE


@dataclass(frozen=True, slots=True)
class Factor:
    """A factor: the path of its argument, its values, and how they are matrices."""

    path: str
    tensor: torch.Tensor
    layout: Layout


@dataclass(frozen=True, slots=True)
class Structure:
    """A call that is ``alpha`` * ``left`` @ ``right`` + ``beta`` * ``added``, a product or a batch of them.

    ``shape`` and ``layout`` are the result's, ``added`` the path and the values of what is added.
    """

    left: Factor
    right: Factor
    layout: Layout
    shape: tuple[int, ...]
    added: tuple[str, torch.Tensor] | None = None
    alpha: float = 1.0
    beta: float = 1.0

    @property
    def operations(self) -> int:
        """How many multiplications and additions the result takes."""
        return 2 * math.prod(self.shape) * self.left.layout.columns

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of all tensors."""
        return self.left.tensor.dtype

    @property
    def paths(self) -> frozenset[str]:
        """The paths of all tensors."""
        added = () if self.added is None else (self.added[0],)
        return frozenset((self.left.path, self.right.path, *added))

    def forward(self, result: torch.Tensor) -> list[Product]:
        """Return the products that the result of this call is to be."""
        left, right = (each.layout.matrices(each.tensor) for each in (self.left, self.right))
        results, added = self.layout.matrices(result), self._added(len(left))
        return [Product(left[i], right[i], results[i], self.alpha, added[i], self.beta) for i in range(len(left))]

    def backward(self, path: str, gradient: torch.Tensor, arriving: torch.Tensor) -> list[Product]:
        """Return the products that the gradient of a factor is to be: dA = dC Bᵀ, dB = Aᵀ dC."""
        came = self.layout.matrices(arriving)
        if path == self.left.path:
            right, found = self.right.layout.matrices(self.right.tensor), self.left.layout.matrices(gradient)
            return [Product(came[i], right[i].mT, found[i], self.alpha) for i in range(len(came))]
        left, found = self.left.layout.matrices(self.left.tensor), self.right.layout.matrices(gradient)
        return [Product(left[i].mT, came[i], found[i], self.alpha) for i in range(len(came))]

    @property
    def larger(self) -> Factor:
        """The factor with more elements, whose own gradient alone does not read it."""
        return self.left if self.left.tensor.numel() >= self.right.tensor.numel() else self.right

    def summed(self, arriving: torch.Tensor) -> torch.Tensor:
        """Return what arrives as rows whose sum, times ``beta``, is the gradient of a row that is added."""
        return self.layout.matrices(arriving).flatten(0, 1)

    def _added(self, batch: int) -> Sequence[torch.Tensor | None]:
        """Return what is added to each product."""
        if self.added is None or self.added[1].dim() == 1:
            return [self.added and self.added[1]] * batch
        return list(self.layout.matrices(self.added[1]))


def structure_of(operation: str, arguments: Arguments) -> Structure | None:
    """Return what product a call is; None for any other, and for one that is left to the exact check.

    Its tensors are dense, without overlap, of one float dtype, and large enough for a screen to be worth it.
    """
    form = _FORMS.get(operation)
    if form is None:
        return None
    given = by_name(form.parameters, arguments, ("alpha", "beta") if form.is_scaled else ())
    if given is None:
        return None
    alpha, beta = (given.pop(name)[1] if name in given else 1 for name in ("alpha", "beta"))
    options = {name: given.pop(name)[1] for name in ("equation", *_WINDOWS) if name in given}
    if not all(type(number) in (int, float) and math.isfinite(number) for number in (alpha, beta)) or not alpha:
        return None
    if any(isinstance(option, torch.Tensor) for option in options.values()):
        return None
    if form.added in given and given[form.added][1] is None:
        del given[form.added]
    if (
        not all(is_screenable_operand(value) for _, value in given.values())
        or not {form.left, form.right} <= given.keys()
    ):
        return None
    if len({value.dtype for _, value in given.values()}) != 1:
        return None
    factors, sizes = (given[form.left], given[form.right]), (given[form.left][1].shape, given[form.right][1].shape)
    if operation == "einsum":
        equation = options.get("equation")
        found = _contracted(*factors, contraction(equation, *sizes) if isinstance(equation, str) else None)
    elif "stride" in form.parameters:
        found = _contracted(*factors, patches(*sizes, options))
    else:
        found = _product(*factors, form, is_transposed=operation == "linear")
    added = given.get(form.added)
    if found is None or not _is_large(found) or (added is not None and not _fits(added[1], found, form)):
        return None
    return replace(found, added=added, alpha=float(alpha), beta=float(beta))


def by_name(
    names: Sequence[str], arguments: Arguments, keywords: Sequence[str] = ()
) -> dict[str, tuple[str, Any]] | None:
    """Return path and value of each argument by its parameter's name; None where one is unknown.

    ``keywords`` are the names of those that have no position.
    """
    args, kwargs = arguments.args, arguments.kwargs
    if len(args) > len(names) or kwargs.keys() - {*names[len(args) :], *keywords}:
        return None
    found = {name: (f"args.{i}", value) for i, (name, value) in enumerate(zip(names, args, strict=False))}
    return found | {name: (f"kwargs.{name}", value) for name, value in kwargs.items()}


def is_screenable_operand(value: Any) -> bool:
    """Return whether an argument is a tensor of such floats as are screened, dense and without overlap."""
    return (
        isinstance(value, torch.Tensor)
        and is_plain(value)
        and value.dtype in SCREENED_DTYPES
        and value.numel() > 0
        and not overlaps(value)
    )


def _product(
    left: tuple[str, torch.Tensor], right: tuple[str, torch.Tensor], form: _Form, *, is_transposed: bool
) -> Structure | None:
    """Return the product of the last two dimensions; None where the factors do not fit each other."""
    ours, theirs = left[1], right[1].mT if is_transposed and right[1].dim() == 2 else right[1]
    if min(ours.dim(), theirs.dim()) < 2 or ours.shape[-1] != theirs.shape[-2]:
        return None
    if form.dimensions is not None and not ours.dim() == theirs.dim() == form.dimensions:
        return None
    shape, is_joined = (*ours.shape[:-1], theirs.shape[-1]), theirs.dim() == 2
    if not is_joined and (is_transposed or ours.shape[:-2] != theirs.shape[:-2]):
        return None
    layout = Layout((1, 0), *theirs.shape) if is_transposed else Layout.of(theirs.shape)
    return Structure(
        Factor(*left, Layout.of(ours.shape, is_joined=is_joined)),
        Factor(*right, layout),
        Layout.of(torch.Size(shape), is_joined=is_joined),
        shape,
    )


def _contracted(
    left: tuple[str, torch.Tensor], right: tuple[str, torch.Tensor], found: Contraction | None
) -> Structure | None:
    if found is None:
        return None
    return Structure(Factor(*left, found.left), Factor(*right, found.right), found.result, found.shape)


def _is_large(found: Structure) -> bool:
    return min(found.layout.rows, found.layout.columns) >= _LEAST_SIDE and found.left.layout.columns >= _LEAST_INNER


def _fits(added: torch.Tensor, found: Structure, form: _Form) -> bool:
    """Return whether something can be added as it is: a row of the result's length, or a tensor of its shape."""
    return added.shape == (found.layout.columns,) or (form.is_scaled and added.shape == found.shape)
