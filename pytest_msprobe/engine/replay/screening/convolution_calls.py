"""Which calls are convolutions, with what is what among their arguments."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch

from pytest_msprobe.engine.replay.arguments import Arguments
from pytest_msprobe.engine.replay.screening.convolution import Convolution
from pytest_msprobe.engine.replay.screening.patches import each_of
from pytest_msprobe.engine.replay.screening.structure import by_name, is_screenable_operand
from pytest_msprobe.engine.replay.screening.windows import Axis

_TENSORS = ("input", "weight", "bias")
_PLAIN = (*_TENSORS, "stride", "padding", "dilation", "groups")
_TRANSPOSED = (*_TENSORS, "stride", "padding", "output_padding", "groups", "dilation")

# Their dimensions and the names of their parameters.
_CONVOLUTIONS: Mapping[str, tuple[int, tuple[str, ...]]] = {
    **{f"conv{count}d": (count, _PLAIN) for count in (1, 2, 3)},
    **{f"conv_transpose{count}d": (count, _TRANSPOSED) for count in (1, 2, 3)},
}

# Below, a screen costs about what the exact check does: docs/performance.md, "Screened convolutions". Golden of 16 bits
# is float32, which is computed faster.
_LEAST_CHANNELS: Mapping[torch.dtype, int] = {torch.float32: 128, torch.float16: 256, torch.bfloat16: 256}
_LEAST_WINDOWS = 256


def convolution_of(operation: str, arguments: Arguments) -> Convolution | None:
    """Return what convolution a call is; None for any other, and for one that is left to the exact check.

    Its tensors are dense, without overlap, of one float dtype, fit each other, and are large enough for a screen to be
    worth it.
    """
    count, names = _CONVOLUTIONS.get(operation, (0, ()))
    given = by_name(names, arguments) if names else None
    if given is None or not {"input", "weight"} <= given.keys():
        return None
    options = {name: given.pop(name)[1] for name in _TRANSPOSED if name not in _TENSORS and name in given}
    if "bias" in given and given["bias"][1] is None:
        del given["bias"]
    tensors = [value for _, value in given.values()]
    if not all(map(is_screenable_operand, tensors)) or len({value.dtype for value in tensors}) != 1:
        return None
    values, weight, added = given["input"], given["weight"], given.get("bias")
    is_transposed, groups = names is _TRANSPOSED, options.pop("groups", 1)
    if values[1].dim() != count + 2 or weight[1].dim() != count + 2 or type(groups) is not int or groups < 1:
        return None
    axes = _axes(values[1].shape[2:], weight[1].shape[2:], options, is_transposed=is_transposed)
    features, image = weight[1].shape[0], weight[1].shape[1] * groups
    taken, channels = (features, image) if is_transposed else (image, features)
    if (
        not axes
        or values[1].shape[1] != taken
        or features % groups
        or (added is not None and added[1].shape != (channels,))
    ):
        return None
    windows = len(values[1]) * math.prod(axis.features for axis in axes)
    if min(features, image) // groups < _LEAST_CHANNELS[values[1].dtype] or windows < _LEAST_WINDOWS:
        return None
    sides = (axis.image if is_transposed else axis.features for axis in axes)
    shape = (len(values[1]), channels, *sides)
    if is_transposed:
        return Convolution({"features": values, "weight": weight}, "image", shape, axes, groups, added)
    return Convolution({"image": values, "weight": weight}, "features", shape, axes, groups, added)


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
