"""Convolutions, pooling and LSTM, forward and backward, by the definitions of the primitives.

Of most of their settings files say nothing. The text of the graph has them; without it shapes leave few strides and
paddings open, and numbers show which of these it was. An LSTM's shapes show all that it was made with.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from pytest_msprobe.extensions.mindspore.kernels.kernel_call import KernelCall, gradient
from pytest_msprobe.extensions.mindspore.primitives import convolution as primitives
from pytest_msprobe.extensions.mindspore.primitives import recurrent

# A choice: settings that are tried. More would leave more shapes open than they explain.
_WIDEST_DILATION = 3
_WIDEST_STRIDE = 8
# The attribute that holds each setting.
_CONVOLUTION = {name: name for name in ("pad_mode", "stride", "dilation", "group")}
_CONVOLUTION |= {"pad": "pad_list", "data_format": "format"}
_POOLING = {name: name for name in ("kernel_size", "strides", "pad_mode")} | {"data_format": "format"}
_PAD_MODES = {0: "pad", 1: "same", 2: "valid"}


def convolution(call: KernelCall) -> Tensor:
    """Return Conv2D or Conv3D of an image with filters."""
    x, weight = call.tensor(0), call.tensor(1)
    settings = _convolutions(x.shape, weight.shape, call.shape)
    return _by(call, _CONVOLUTION, settings, functools.partial(primitives.convolution, x, weight))


def gradient_of_image(call: KernelCall, dy: int = 0, filters: int = 1) -> Tensor:
    """Return Conv2DBackpropInput: of the gradient that arrives at a slot and the filters the gradient of the image."""
    arriving, weight = call.tensor(dy), call.tensor(filters)
    settings = _convolutions(call.shape, weight.shape, arriving.shape)
    return _by(
        call,
        _CONVOLUTION,
        settings,
        functools.partial(primitives.convolution_of_gradient, arriving, weight, call.shape),
    )


def gradient_of_filters(call: KernelCall, dy: int = 0, image: int = 1) -> Tensor:
    """Return Conv2DBackpropFilter: of the gradient that arrives at a slot and the image the gradient of the filters."""
    arriving, x = call.tensor(dy), call.tensor(image)
    filters = x.new_zeros(call.shape)

    def compute(**settings: Any) -> Tensor:
        return gradient(lambda weight: primitives.convolution(x, weight, **settings), filters, arriving)

    return _by(call, _CONVOLUTION, _convolutions(x.shape, call.shape, arriving.shape), compute)


# The kernels of volumes have them the other way round.
gradient_of_volume = functools.partial(gradient_of_image, dy=1, filters=0)
gradient_of_filters_3d = functools.partial(gradient_of_filters, dy=1, image=0)


def max_pool(call: KernelCall) -> Tensor:
    """Return MaxPool."""
    x = call.tensor(0)
    return _by(call, _POOLING, _pools(x.shape, call.shape), functools.partial(primitives.max_pool_2d, x))


def max_pool_gradient(call: KernelCall) -> Tensor:
    """Return MaxPoolGrad: each arriving gradient at the first greatest element of its window."""
    x, y = call.tensor(0, *call.shape), call.tensor(1)
    dy = call.tensor(2, *y.shape)

    def compute(**settings: Any) -> Tensor:
        return gradient(lambda image: primitives.max_pool_2d(image, **settings), x, dy)

    return _by(call, _POOLING, _pools(x.shape, y.shape), compute)


def avg_pool(call: KernelCall) -> Tensor:
    """Return AvgPool."""
    return primitives.avg_pool_2d(call.tensor(0), **_pool_settings(call, 1))


def avg_pool_gradient(call: KernelCall) -> Tensor:
    """Return AvgPoolGrad."""
    x, y = call.tensor(0, *call.shape), call.tensor(1)
    settings = _pool_settings(call, 3)
    return gradient(lambda image: primitives.avg_pool_2d(image, **settings), x, call.tensor(2, *y.shape))


def avg_pool_3d(call: KernelCall) -> Tensor:
    """Return AvgPool3D."""
    return primitives.avg_pool_3d(call.tensor(0), **_pool_3d_settings(call))


def avg_pool_3d_gradient(call: KernelCall) -> Tensor:
    """Return AvgPool3DGrad, which is given the sizes of the volume and not its elements."""
    settings = _pool_3d_settings(call)
    volume = call.tensor(1).new_zeros(call.shape)

    def pool(x: Tensor) -> Tensor:
        return primitives.avg_pool_3d(x, **settings)

    return gradient(pool, volume, call.tensor(1, *pool(volume).shape))


def _pool_3d_settings(call: KernelCall) -> dict[str, Any]:
    names = ("kernel_size", "strides", "ceil_mode", "count_include_pad", "divisor_override")
    settings = {name: call.setting(name) for name in names}
    return settings | {"pad_mode": "pad", "pad": call.setting("pad_list"), "data_format": call.setting("format")}


def _pool_settings(call: KernelCall, first: int) -> dict[str, Any]:
    names = ("kernel_size", "strides", "pad_mode", "data_format")
    settings = {name: call.setting(name, first + i) for i, name in enumerate(names)}
    return settings | {"pad_mode": _PAD_MODES.get(settings["pad_mode"], settings["pad_mode"]), "data_format": "NCHW"}


def _by(
    call: KernelCall, attributes: Mapping[str, str], choices: Iterator[dict[str, Any]], compute: Callable[..., Tensor]
) -> Tensor:
    """Return what a definition gives by settings that attributes of these names hold, else by one of the choices."""
    recorded = call.attributes(attributes)
    result: Tensor = (
        compute(**recorded) if recorded else call.infer_from_values("strides and padding", choices, compute)
    )
    return result


def _convolutions(image: Sequence[int], filters: Sequence[int], result: Sequence[int]) -> Iterator[dict[str, Any]]:
    """Yield the settings by which an image and filters give a result, as far as shapes show."""
    if not len(image) == len(filters) == len(result):
        return
    group = image[1] // filters[1]
    for dilation, stride in itertools.product(range(1, _WIDEST_DILATION + 1), range(1, _WIDEST_STRIDE + 1)):
        sizes = zip(image[2:], filters[2:], result[2:], strict=True)
        for pads in itertools.product(*(_pads(*axis_sizes, stride, dilation) for axis_sizes in sizes)):
            pad = [axis_sizes for pair in pads for axis_sizes in pair]
            settings = {"pad_mode": "pad", "pad": pad, "stride": stride, "dilation": dilation, "group": group}
            yield settings | {"data_format": "NCHW"}


def _pads(size: int, width: int, windows: int, stride: int, dilation: int) -> Iterator[tuple[int, int]]:
    """Yield what may have been added before and behind an axis: as much on both sides, or one more behind."""
    reach = (width - 1) * dilation + 1
    for both in range(2 * reach - 1):
        if (size + both - reach) // stride + 1 == windows:
            yield both // 2, both - both // 2


def _pools(image: Sequence[int], result: Sequence[int]) -> Iterator[dict[str, Any]]:
    """Yield the settings by which pooling an image gives a result, as far as shapes show."""
    if not len(image) == len(result) == 4:
        return
    for stride, width in itertools.product(range(1, _WIDEST_STRIDE + 1), range(1, min(image[2:]) + 1)):
        counts = {
            "valid": [(size - width) // stride + 1 for size in image[2:]],
            "same": [-(-size // stride) for size in image[2:]],
        }
        for mode, count in counts.items():
            if count == list(result[2:]):
                yield {"kernel_size": width, "strides": stride, "pad_mode": mode, "data_format": "NCHW"}


def lstm(call: KernelCall) -> tuple[Tensor, Tensor, Tensor]:
    """Return LSTM: the outputs and the last states."""
    inputs, settings = _made(call, call.shape, tuple(call.results[1].shape))
    return recurrent.lstm(*inputs, **settings)


def lstm_gradient(call: KernelCall) -> tuple[Tensor, ...]:
    """Return LSTMGrad: the gradients of the inputs, the states and the weights."""
    state = tuple(call.results[1].shape)
    steps, batch = call.shape[:2]
    outputs = steps, batch, state[0] * state[2]
    inputs, settings = _made(call, outputs, state)
    arriving = [call.tensor(7, *outputs), call.tensor(8, *state), call.tensor(9, *state)]
    with torch.enable_grad():
        leaves = [tensor.detach().requires_grad_() for tensor in inputs]
        return torch.autograd.grad(recurrent.lstm(*leaves, **settings), leaves, arriving)


def _made(call: KernelCall, outputs: tuple[int, ...], state: tuple[int, ...]) -> tuple[list[Tensor], dict[str, Any]]:
    """Return what an LSTM whose outputs and states have these shapes takes, and what it was made with."""
    directions, _, hidden = state
    x, weights = call.tensor(0), call.tensor(3)
    x = call.tensor(0, *outputs[:2], x.numel() // math.prod(outputs[:2]))
    matrices = directions * 4 * hidden * (x.shape[2] + hidden)
    settings = {
        "input_size": x.shape[2],
        "hidden_size": hidden,
        "num_layers": 1,
        "has_bias": weights.numel() > matrices,
        "bidirectional": directions == 2,
    }
    return [x, call.tensor(1, *state), call.tensor(2, *state), weights], settings
