"""Convolutions and pooling, forward and backward, by the definitions of the primitives.

Of most of their settings a dump says nothing: shapes leave few strides and paddings open, and numbers tell which of
these it was.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from torch import Tensor

from pytest_msprobe.engine.frameworks.mindspore.primitives import windows
from pytest_msprobe.engine.kernels.given import Given, gradient

_WIDEST_DILATION = 3
_WIDEST_STRIDE = 8
_PAD_MODES = {0: "pad", 1: "same", 2: "valid"}


def convolution(given: Given) -> Tensor:
    """Return Conv2D of an image with filters."""
    x, weight = given.tensor(0), given.tensor(1)
    settings = _convolutions(x.shape, weight.shape, given.shape)
    return _by(given, settings, functools.partial(windows.convolution, x, weight))


def gradient_of_image(given: Given) -> Tensor:
    """Return Conv2DBackpropInput: of the arriving gradient and the filters the gradient of the image."""
    dy, weight = given.tensor(0), given.tensor(1)
    settings = _convolutions(given.shape, weight.shape, dy.shape)
    return _by(given, settings, functools.partial(windows.convolution_of_gradient, dy, weight, given.shape))


def gradient_of_filters(given: Given) -> Tensor:
    """Return Conv2DBackpropFilter: of the arriving gradient and the image the gradient of the filters."""
    dy, x = given.tensor(0), given.tensor(1)
    filters = x.new_zeros(given.shape)

    def compute(**settings: Any) -> Tensor:
        return gradient(lambda weight: windows.convolution(x, weight, **settings), filters, dy)

    return _by(given, _convolutions(x.shape, given.shape, dy.shape), compute)


def max_pool(given: Given) -> Tensor:
    """Return MaxPool."""
    x = given.tensor(0)
    return _by(given, _pools(x.shape, given.shape), functools.partial(windows.max_pool_2d, x))


def max_pool_gradient(given: Given) -> Tensor:
    """Return MaxPoolGrad: each arriving gradient at the first greatest element of its window."""
    x, y = given.tensor(0, *given.shape), given.tensor(1)
    dy = given.tensor(2, *y.shape)

    def compute(**settings: Any) -> Tensor:
        return gradient(lambda image: windows.max_pool_2d(image, **settings), x, dy)

    return _by(given, _pools(x.shape, y.shape), compute)


def avg_pool(given: Given) -> Tensor:
    """Return AvgPool."""
    return windows.avg_pool_2d(given.tensor(0), **_pool_settings(given, 1))


def avg_pool_gradient(given: Given) -> Tensor:
    """Return AvgPoolGrad."""
    x, y = given.tensor(0, *given.shape), given.tensor(1)
    settings = _pool_settings(given, 3)
    return gradient(lambda image: windows.avg_pool_2d(image, **settings), x, given.tensor(2, *y.shape))


def _pool_settings(given: Given, first: int) -> dict[str, Any]:
    names = ("kernel_size", "strides", "pad_mode", "data_format")
    settings = {name: given.setting(name, first + i) for i, name in enumerate(names)}
    return settings | {"pad_mode": _PAD_MODES.get(settings["pad_mode"], settings["pad_mode"]), "data_format": "NCHW"}


def _by(given: Given, choices: Iterator[dict[str, Any]], compute: Callable[..., Tensor]) -> Tensor:
    found: Tensor = given.told_by_numbers("strides and padding", choices, compute)
    return found


def _convolutions(image: Sequence[int], filters: Sequence[int], result: Sequence[int]) -> Iterator[dict[str, Any]]:
    """Yield the settings by which an image and filters give a result, as far as shapes tell."""
    if not len(image) == len(filters) == len(result):
        return
    group = image[1] // filters[1]
    for dilation, stride in itertools.product(range(1, _WIDEST_DILATION + 1), range(1, _WIDEST_STRIDE + 1)):
        sizes = zip(image[2:], filters[2:], result[2:], strict=True)
        for pads in itertools.product(*(_pads(*each, stride, dilation) for each in sizes)):
            pad = [each for pair in pads for each in pair]
            settings = {"pad_mode": "pad", "pad": pad, "stride": stride, "dilation": dilation, "group": group}
            yield settings | {"data_format": "NCHW"}


def _pads(size: int, width: int, wanted: int, stride: int, dilation: int) -> Iterator[tuple[int, int]]:
    """Yield what may have been added before and behind an axis: as much on both sides, or one more behind."""
    reach = (width - 1) * dilation + 1
    for both in range(2 * reach - 1):
        if (size + both - reach) // stride + 1 == wanted:
            yield both // 2, both - both // 2


def _pools(image: Sequence[int], result: Sequence[int]) -> Iterator[dict[str, Any]]:
    """Yield the settings by which pooling an image gives a result, as far as shapes tell."""
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
