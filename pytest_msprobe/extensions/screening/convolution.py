"""Matrix products among calls: factors and layout, convolutions as products of patches with weights."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch

from msprobe_standards.tensor_layouts import is_plain
from pytest_msprobe.engine.replay.calls.arguments import Arguments
from pytest_msprobe.engine.replay.ops.convolution_geometry import PARAMETERS, Axis, Windows, convolution_call
from pytest_msprobe.engine.values.strides import overlaps
from pytest_msprobe.extensions.screening.config import SCREENED_DTYPES
from pytest_msprobe.extensions.screening.im2col import Contraction, Layout, contraction, in_groups, patches, patches_of
from pytest_msprobe.extensions.screening.tile_sums import TILE, Product


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
        """Return whether it takes ``alpha`` and ``beta``."""
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
        """Return how many multiplications and additions the result takes."""
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
        left, right = (factor.layout.matrices(factor.tensor) for factor in (self.left, self.right))
        results, added = self.layout.matrices(result), self._added(len(left))
        return [Product(left[i], right[i], results[i], self.alpha, added[i], self.beta) for i in range(len(left))]

    def backward(self, path: str, gradient: torch.Tensor, arriving: torch.Tensor) -> list[Product]:
        """Return the products that the gradient of a factor is to be: dA = dC Bᵀ, dB = Aᵀ dC."""
        came = self.layout.matrices(arriving)
        if path == self.left.path:
            right, gradients = self.right.layout.matrices(self.right.tensor), self.left.layout.matrices(gradient)
            return [Product(came[i], right[i].mT, gradients[i], self.alpha) for i in range(len(came))]
        left, gradients = self.left.layout.matrices(self.left.tensor), self.right.layout.matrices(gradient)
        return [Product(left[i].mT, came[i], gradients[i], self.alpha) for i in range(len(came))]

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
    named_args = by_name(form.parameters, arguments, ("alpha", "beta") if form.is_scaled else ())
    if named_args is None:
        return None
    alpha, beta = (named_args.pop(name)[1] if name in named_args else 1 for name in ("alpha", "beta"))
    options = {name: named_args.pop(name)[1] for name in ("equation", *_WINDOWS) if name in named_args}
    if not all(type(number) in (int, float) and math.isfinite(number) for number in (alpha, beta)) or not alpha:
        return None
    if any(isinstance(option, torch.Tensor) for option in options.values()):
        return None
    if form.added in named_args and named_args[form.added][1] is None:
        del named_args[form.added]
    if (
        not all(is_screenable_operand(value) for _, value in named_args.values())
        or not {form.left, form.right} <= named_args.keys()
    ):
        return None
    if len({value.dtype for _, value in named_args.values()}) != 1:
        return None
    factors, sizes = (
        (named_args[form.left], named_args[form.right]),
        (named_args[form.left][1].shape, named_args[form.right][1].shape),
    )
    if operation == "einsum":
        equation = options.get("equation")
        structure = _contracted(*factors, contraction(equation, *sizes) if isinstance(equation, str) else None)
    elif "stride" in form.parameters:
        structure = _contracted(*factors, patches(*sizes, options))
    else:
        structure = _product(*factors, form, is_transposed=operation == "linear")
    added = named_args.get(form.added)
    if structure is None or not _is_large(structure) or (added is not None and not _fits(added[1], structure, form)):
        return None
    return replace(structure, added=added, alpha=float(alpha), beta=float(beta))


def by_name(
    names: Sequence[str], arguments: Arguments, keywords: Sequence[str] = ()
) -> dict[str, tuple[str, Any]] | None:
    """Return path and value of each argument by its parameter's name; None where one is unknown.

    ``keywords`` are the names of those that have no position.
    """
    args, kwargs = arguments.args, arguments.kwargs
    if len(args) > len(names) or kwargs.keys() - {*names[len(args) :], *keywords}:
        return None
    named_args = {name: (f"args.{i}", value) for i, (name, value) in enumerate(zip(names, args, strict=False))}
    return named_args | {name: (f"kwargs.{name}", value) for name, value in kwargs.items()}


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
    left: tuple[str, torch.Tensor], right: tuple[str, torch.Tensor], form: Contraction | None
) -> Structure | None:
    if form is None:
        return None
    return Structure(Factor(*left, form.left), Factor(*right, form.right), form.result, form.shape)


def _is_large(structure: Structure) -> bool:
    return (
        min(structure.layout.rows, structure.layout.columns) >= _LEAST_SIDE
        and structure.left.layout.columns >= _LEAST_INNER
    )


def _fits(added: torch.Tensor, structure: Structure, form: _Form) -> bool:
    """Return whether something can be added as it is: a row of the result's length, or a tensor of its shape."""
    return added.shape == (structure.layout.columns,) or (form.is_scaled and added.shape == structure.shape)


#: What windows lie on, (N, C, ...); the kernels, (F, C / groups, ...); and what windows give, (N, F, ...).
Role = Literal["image", "weight", "features"]


@dataclass(frozen=True, slots=True)
class Convolution:
    """A convolution of any stride, padding, dilation and number of groups.

    With image x, weight w and features y, y[n, f, p] is the sum of w[f, c, t] x[n, c, stride p + dilation t - padding]
    over c and t. That is linear in each: two of the three give the third, or the gradient of it. ``operands`` are two
    of them, each with the path of its argument, ``shape`` is the shape of the third, the ``result``, and ``added`` path
    and values of its bias.
    """

    operands: Mapping[Role, tuple[str, torch.Tensor]]
    result: Role
    shape: tuple[int, ...]
    axes: tuple[Axis, ...]
    groups: int
    added: tuple[str, torch.Tensor] | None

    #: What the bias is multiplied by.
    beta: ClassVar[float] = 1.0

    @property
    def operations(self) -> int:
        """Return how many multiplications and additions the result takes."""
        windows = math.prod(axis.features for axis in self.axes)
        return 2 * self.shape[0] * windows * self.operands["weight"][1].numel()

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of all tensors."""
        return self.operands["weight"][1].dtype

    @property
    def paths(self) -> frozenset[str]:
        """The paths of all tensors."""
        added = () if self.added is None else (self.added[0],)
        return frozenset((*(path for path, _ in self.operands.values()), *added))

    def forward(self, result: torch.Tensor) -> list[Product]:
        """Return the products that the result of this call is to be."""
        tensors = {role: tensor for role, (_, tensor) in self.operands.items()}
        return self._products(self.result, result, tensors, None if self.added is None else self.added[1])

    def backward(self, path: str, gradient: torch.Tensor, arriving: torch.Tensor) -> list[Product]:
        """Return the products that the gradient of an operand is to be."""
        own_role = next(role for role, operand in self.operands.items() if operand[0] == path)
        tensors = {role: tensor for role, (_, tensor) in self.operands.items()} | {self.result: arriving}
        return self._products(own_role, gradient, tensors)

    def summed(self, arriving: torch.Tensor) -> torch.Tensor:
        """Return what arrives as rows (count, F) whose sum is the gradient of the bias."""
        return arriving.movedim(1, -1).flatten(0, -2)

    def _products(
        self, role: Role, result: torch.Tensor, tensors: Mapping[Role, torch.Tensor], bias: torch.Tensor | None = None
    ) -> list[Product]:
        """Return the products that one of the three is to be, or its gradient, by the others: one for each group.

        An image takes as many for each remainder of a place by the strides. Rows are channels of what is wanted;
        patches are the columns, since those are walked over once.
        """
        groups, every = self.groups, (slice(None),) * 3
        if role == "weight":
            ((patches),) = patches_of(tensors["image"], groups, [self._windows])
            features = _by_group(tensors["features"], groups)
            weights = in_groups(result, 0, groups).movedim(2, -1).flatten(2)
            return [Product(features[i], patches[i], weights[i]) for i in range(groups)]
        weight, results = in_groups(tensors["weight"], 0, groups), in_groups(result, 1, groups)
        source, ways = tensors["image" if role == "features" else "features"], [self._windows]
        if role == "image":
            weight, ways = weight.transpose(1, 2), list(itertools.product(*(axis.adjoint() for axis in self.axes)))
        products = []
        for way, patches in zip(ways, patches_of(source, groups, ways), strict=True):
            taps, places = (*every, *(windows.taps for windows in way)), (*every, *(windows.places for windows in way))
            kernels, parts = weight[taps].movedim(2, -1).flatten(2), results[places].movedim(0, 2).flatten(2)
            added = [None] * groups if bias is None else bias.view(groups, -1, 1)
            products += [Product(kernels[i], patches[i].mT, parts[i], added=added[i]) for i in range(groups)]
        return products

    @property
    def _windows(self) -> tuple[Windows, ...]:
        return tuple(axis.windows() for axis in self.axes)


def _by_group(values: torch.Tensor, groups: int) -> torch.Tensor:
    """Return values (N, C, ...) as (groups, C / groups, N * ...)."""
    return in_groups(values, 1, groups).movedim(0, 2).flatten(2)


# Below, a screen costs about what the exact check does: docs/screening.md, "Screening of convolutions". Golden of 16
# bits is float32, which is computed faster.
_LEAST_CHANNELS: Mapping[torch.dtype, int] = {torch.float32: 128, torch.float16: 256, torch.bfloat16: 256}
_LEAST_WINDOWS = 256


def convolution_of(operation: str, arguments: Arguments) -> Convolution | None:
    """Return what convolution a call is; None for any other, and for one that is left to the exact check.

    Its tensors are dense, without overlap, of one float dtype, and are large enough for a screen to be worth it.
    """
    call = convolution_call(operation, by_name(PARAMETERS.get(operation, ()), arguments) or {})
    if call is None:
        return None
    values, weight = call.values, call.weight
    tensors = [values[1], weight[1], *([] if call.bias is None else [call.bias[1]])]
    if not all(map(is_screenable_operand, tensors)) or len({tensor.dtype for tensor in tensors}) != 1:
        return None
    features, per_group = weight[1].shape[:2]
    windows = len(values[1]) * math.prod(axis.features for axis in call.axes)
    channels = min(features // call.groups, per_group)
    if channels < _LEAST_CHANNELS[values[1].dtype] or windows < _LEAST_WINDOWS:
        return None
    operands: dict[Role, tuple[str, torch.Tensor]]
    if call.is_transposed:
        operands = {"features": values, "weight": weight}
        return Convolution(operands, "image", call.shape, call.axes, call.groups, call.bias)
    operands = {"image": values, "weight": weight}
    return Convolution(operands, "features", call.shape, call.axes, call.groups, call.bias)
