"""Geometry of a convolution call: its tensors, its dimensions, its groups and the shape of its result."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

_PLAIN = ("input", "weight", "bias", "stride", "padding", "dilation", "groups")
_TRANSPOSED = ("input", "weight", "bias", "stride", "padding", "output_padding", "groups", "dilation")

PARAMETERS: Mapping[str, tuple[str, ...]] = {
    **{f"conv{count}d": _PLAIN for count in (1, 2, 3)},
    **{f"conv_transpose{count}d": _TRANSPOSED for count in (1, 2, 3)},
}
"""The parameters of each convolution, in order."""


@dataclass(frozen=True, slots=True)
class Windows:
    """Windows along one dimension: tap j of window i reads the element at ``starts[i] + offsets[j]``.

    What lies outside is zero. ``places`` are those that the windows give of the result, ``taps`` those of the kernel
    that the offsets belong to, both in order.
    """

    starts: range
    offsets: range
    places: slice
    taps: slice


@dataclass(frozen=True, slots=True)
class Axis:
    """One dimension of a convolution: so many elements of its ``image``, so many windows that give its ``features``.

    ``padding`` zeros stand before the image. A transposed convolution makes the image of the features.
    """

    image: int
    features: int
    kernel: int
    stride: int
    dilation: int
    padding: int

    def windows(self) -> Windows:
        """Return the windows on the image that give the features."""
        starts = range(0, self.features * self.stride, self.stride)
        offsets = range(-self.padding, self.dilation * self.kernel - self.padding, self.dilation)
        return Windows(starts, offsets, slice(None), slice(None))

    def adjoint(self) -> list[Windows]:
        """Return the windows on the features that give the image.

        Of element r + stride * j the features at (r + padding - dilation * tap) / stride + j are a part, for the taps
        where that is a whole number. So each r has windows of its own, which read neighbouring features.
        """
        return [self._of_remainder(first) for first in range(min(self.stride, self.image))]

    def _of_remainder(self, first: int) -> Windows:
        divisor = math.gcd(self.stride, self.dilation)
        period, reach = self.stride // divisor, first + self.padding
        met = (tap for tap in range(min(period, self.kernel)) if (reach - self.dilation * tap) % self.stride == 0)
        tap = next(met, self.kernel)
        count = len(range(tap, self.kernel, period))
        offset, step = (reach - self.dilation * tap) // self.stride, self.dilation // divisor
        return Windows(
            range(len(range(first, self.image, self.stride))),
            range(offset, offset - step * count, -step),
            slice(first, None, self.stride),
            slice(tap, None, period),
        )


@dataclass(frozen=True, slots=True)
class ConvolutionCall:
    """A convolution's tensors, each with the path of its argument, and what result it gives.

    It takes windows of ``values``, (N, C, ...), along ``axes``. The ``weight`` is (features, image / groups, ...): the
    channels that come out and go in, of a transposed convolution those that go in and come out.
    """

    values: tuple[str, torch.Tensor]
    weight: tuple[str, torch.Tensor]
    bias: tuple[str, torch.Tensor] | None
    axes: tuple[Axis, ...]
    groups: int
    shape: tuple[int, ...]
    is_transposed: bool


def convolution_call(operation: str, given: Mapping[str, tuple[str, Any]]) -> ConvolutionCall | None:
    """Return what convolution an operation makes of its arguments, by the names of its parameters.

    None for any other operation, for a batch without its dimension, and for what the CPU rejects.
    """
    names = PARAMETERS.get(operation, ())
    if not {"input", "weight"} <= given.keys() <= {*names}:
        return None
    values, weight, (_, groups) = given["input"], given["weight"], given.get("groups", ("", 1))
    bias = given.get("bias", ("", None))
    of_bias = bias if isinstance(bias[1], torch.Tensor) else None
    if not all(isinstance(each, torch.Tensor) for each in (values[1], weight[1])) or (of_bias is None) != (
        bias[1] is None
    ):
        return None
    count, is_transposed = int(operation[-2]), names is _TRANSPOSED
    if {values[1].dim(), weight[1].dim()} != {count + 2} or type(groups) is not int or groups < 1:
        return None
    options = {name: value for name, (_, value) in given.items() if name not in ("input", "weight", "bias", "groups")}
    axes = _axes(values[1].shape[2:], weight[1].shape[2:], options, is_transposed=is_transposed)
    features, image = weight[1].shape[0], weight[1].shape[1] * groups
    taken, channels = (features, image) if is_transposed else (image, features)
    is_fitting = values[1].shape[1] == taken and features % groups == 0
    if not axes or not is_fitting or (of_bias is not None and of_bias[1].shape != (channels,)):
        return None
    sides = (axis.image if is_transposed else axis.features for axis in axes)
    return ConvolutionCall(values, weight, of_bias, axes, groups, (len(values[1]), channels, *sides), is_transposed)


def each_of(given: Any, count: int) -> tuple[Any, ...]:
    """Return what is given for all dimensions at once, or for each, for each of so many."""
    many = tuple(given) if isinstance(given, tuple | list) else (given,)
    return many * count if len(many) == 1 else many


def _axes(
    sides: torch.Size, kernel: torch.Size, options: Mapping[str, Any], *, is_transposed: bool
) -> tuple[Axis, ...]:
    """Return the dimensions of a convolution; none where the CPU rejects it or an option is not what it is to be."""
    count, padding = len(kernel), options.get("padding", 0)
    is_word = not is_transposed and padding in ("same", "valid")
    strides, dilations, *_ = given = (
        each_of(options.get("stride", 1), count),
        each_of(options.get("dilation", 1), count),
        each_of(options.get("output_padding", 0), count),
        each_of(0 if is_word else padding, count),
    )
    if any(len(each) != count or any(type(number) is not int or number < 0 for number in each) for each in given):
        return ()
    if 0 in (*strides, *dilations) or (padding == "same" and max(strides) > 1):
        return ()
    found = []
    for side, size, stride, dilation, more, before in zip(sides, kernel, *given, strict=True):
        reach = dilation * (size - 1)
        low, both = (reach // 2, reach) if padding == "same" else (before, 2 * before)
        if is_transposed:
            axis = Axis((side - 1) * stride + reach + more + 1 - both, side, size, stride, dilation, low)
        else:
            axis = Axis(side, (side + both - reach - 1) // stride + 1, size, stride, dilation, low)
        if axis.image < 1 or axis.features < 1 or more >= max(stride, dilation):
            return ()
        found.append(axis)
    return tuple(found)
