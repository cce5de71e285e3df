"""Convolutions, plain or transposed, as products of matrices of patches with weights."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch

from pytest_msprobe.engine.replay.calls.arguments import Arguments
from pytest_msprobe.engine.replay.ops.convolution_geometry import PARAMETERS, Axis, Windows, convolution_call
from pytest_msprobe.extensions.screening.im2col import in_groups, patches_of
from pytest_msprobe.extensions.screening.matmul_structure import by_name, is_screenable_operand
from pytest_msprobe.extensions.screening.product import Product

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
        """How many multiplications and additions the result takes."""
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
        given = {role: tensor for role, (_, tensor) in self.operands.items()}
        return self._products(self.result, result, given, None if self.added is None else self.added[1])

    def backward(self, path: str, gradient: torch.Tensor, arriving: torch.Tensor) -> list[Product]:
        """Return the products that the gradient of an operand is to be."""
        wanted = next(role for role, operand in self.operands.items() if operand[0] == path)
        given = {role: tensor for role, (_, tensor) in self.operands.items()} | {self.result: arriving}
        return self._products(wanted, gradient, given)

    def summed(self, arriving: torch.Tensor) -> torch.Tensor:
        """Return what arrives as rows (count, F) whose sum is the gradient of the bias."""
        return arriving.movedim(1, -1).flatten(0, -2)

    def _products(
        self, wanted: Role, found: torch.Tensor, given: Mapping[Role, torch.Tensor], bias: torch.Tensor | None = None
    ) -> list[Product]:
        """Return the products that one of the three is to be, or its gradient, by the others: one for each group.

        An image takes as many for each remainder of a place by the strides. Rows are channels of what is wanted;
        patches are the columns, since those are walked over once.
        """
        groups, every = self.groups, (slice(None),) * 3
        if wanted == "weight":
            ((patches),) = patches_of(given["image"], groups, [self._windows])
            features = _by_group(given["features"], groups)
            weights = in_groups(found, 0, groups).movedim(2, -1).flatten(2)
            return [Product(features[i], patches[i], weights[i]) for i in range(groups)]
        weight, results = in_groups(given["weight"], 0, groups), in_groups(found, 1, groups)
        source, ways = given["image" if wanted == "features" else "features"], [self._windows]
        if wanted == "image":
            weight, ways = weight.transpose(1, 2), list(itertools.product(*(axis.adjoint() for axis in self.axes)))
        products = []
        for way, patches in zip(ways, patches_of(source, groups, ways), strict=True):
            taps, places = (*every, *(each.taps for each in way)), (*every, *(each.places for each in way))
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
