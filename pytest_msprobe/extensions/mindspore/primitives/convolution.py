"""Windows that slide over an image: convolutions and pooling."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

#: A setting for each spatial axis: one number for all, one each, or one for each axis of the tensor.
PerAxis: TypeAlias = int | Sequence[int]

_CHANNELS_FIRST = ("NCHW", "NCDHW")


def convolution(
    x: Tensor,
    weight: Tensor,
    *,
    pad_mode: str,
    pad: PerAxis,
    stride: PerAxis,
    dilation: PerAxis,
    group: int,
    data_format: str,
) -> Tensor:
    """Return the cross-correlation of an image (N, C, ...) with filters (O, C / group, ...)."""
    _require_channels_first(data_format)
    n = x.dim() - 2
    steps, gaps = _per_axis(stride, n), _per_axis(dilation, n)
    pads = _pads(pad_mode, pad, x.shape[2:], weight.shape[2:], steps, gaps)
    convolve = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}[n]
    return convolve(_padded(x, pads), weight, stride=steps, dilation=gaps, groups=group)


def convolution_of_gradient(
    grad_output: Tensor,
    weight: Tensor,
    input_sizes: Sequence[int],
    *,
    pad_mode: str,
    pad: PerAxis,
    stride: PerAxis,
    dilation: PerAxis,
    group: int,
    data_format: str,
) -> Tensor:
    """Return the gradient of a convolution's image of these sizes: what is called a transposed convolution."""
    _require_channels_first(data_format)
    sizes, n = [int(size) for size in input_sizes][2:], grad_output.dim() - 2
    steps, gaps = _per_axis(stride, n), _per_axis(dilation, n)
    pads = _pads(pad_mode, pad, sizes, weight.shape[2:], steps, gaps)
    spread = {2: F.conv_transpose2d, 3: F.conv_transpose3d}[n]
    image = spread(grad_output, weight, stride=steps, dilation=gaps, groups=group)
    # The image as it was padded may end behind the last window.
    reached = zip(pads, sizes, image.shape[2:], strict=True)
    crop = [(-before, size + before - length) for (before, _), size, length in reached]
    return _padded(image, crop)


def transposed_convolution_3d(
    x: Tensor,
    weight: Tensor,
    *,
    pad_mode: str,
    pad: PerAxis,
    stride: PerAxis,
    dilation: PerAxis,
    group: int,
    output_padding: PerAxis,
    data_format: str,
) -> Tensor:
    """Return the transposed convolution of an image, with as much cut off as a convolution would have padded."""
    _require_channels_first(data_format)
    if pad_mode.lower() == "same":
        raise NotImplementedError("Conv3DTranspose with pad_mode same has no golden definition")
    pads = [(0, 0)] * 3 if pad_mode.lower() == "valid" else _pairs(pad, 3)
    image = F.conv_transpose3d(x, weight, stride=_per_axis(stride, 3), dilation=_per_axis(dilation, 3), groups=group)
    return _padded(image, [(-a, more - b) for (a, b), more in zip(pads, _per_axis(output_padding, 3), strict=True)])


def max_pool_2d(x: Tensor, *, kernel_size: PerAxis, strides: PerAxis, pad_mode: str, data_format: str) -> Tensor:
    """Return the greatest element of each window of an image."""
    _require_channels_first(data_format)
    sizes, steps = _per_axis(kernel_size, 2), _per_axis(strides, 2)
    pads = _pads(pad_mode, 0, x.shape[2:], sizes, steps, [1] * 2)
    return F.max_pool2d(_padded(x, pads, float("-inf")), sizes, steps)


def avg_pool_2d(x: Tensor, *, kernel_size: PerAxis, strides: PerAxis, pad_mode: str, data_format: str) -> Tensor:
    """Return the mean of each window of an image; what of a window lies over the edge does not count."""
    _require_channels_first(data_format)
    sizes, steps = _per_axis(kernel_size, 2), _per_axis(strides, 2)
    pads = _pads(pad_mode, 0, x.shape[2:], sizes, steps, [1] * 2)
    inside = F.avg_pool2d(_padded(torch.ones_like(x), pads), sizes, steps)
    return F.avg_pool2d(_padded(x, pads), sizes, steps) / inside


def avg_pool_3d(
    x: Tensor,
    *,
    kernel_size: PerAxis,
    strides: PerAxis,
    pad_mode: str,
    pad: PerAxis,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int,
    data_format: str,
) -> Tensor:
    """Return the mean of each window of a volume, or its sum over a divisor that is given."""
    _require_channels_first(data_format)
    sizes, steps = _per_axis(kernel_size, 3), _per_axis(strides, 3)
    pads = _pads(pad_mode, pad, x.shape[2:], sizes, steps, [1] * 3)
    pool = functools.partial(F.avg_pool3d, kernel_size=sizes, stride=steps, ceil_mode=ceil_mode, divisor_override=1)
    counted = _padded(torch.ones_like(x), pads, 1.0 if count_include_pad else 0.0)
    means = pool(_padded(x, pads)) / (divisor_override or pool(counted))
    return _without_windows_behind(means, x.shape[2:], pads, steps)


def max_pool_3d(
    x: Tensor,
    *,
    kernel_size: PerAxis,
    strides: PerAxis,
    pad_mode: str,
    pad_list: PerAxis,
    ceil_mode: bool | None,
    data_format: str,
) -> Tensor:
    """Return the greatest element of each window of a volume."""
    _require_channels_first(data_format)
    sizes, steps = _per_axis(kernel_size, 3), _per_axis(strides, 3)
    pads = _pads(pad_mode, pad_list, x.shape[2:], sizes, steps, [1] * 3)
    windows = F.max_pool3d(_padded(x, pads, float("-inf")), sizes, steps, ceil_mode=bool(ceil_mode))
    return _without_windows_behind(windows, x.shape[2:], pads, steps)


def _without_windows_behind(
    windows: Tensor, sizes: Sequence[int], pads: Sequence[tuple[int, int]], steps: Sequence[int]
) -> Tensor:
    """Return windows without the last ones, which ceil_mode adds, where these begin behind the volume."""
    for axis, (size, (before, _), step) in enumerate(zip(sizes, pads, steps, strict=True), start=2):
        windows = windows.narrow(axis, 0, min(windows.shape[axis], -(-(size + before) // step)))
    return windows


def _require_channels_first(data_format: str) -> None:
    if data_format not in _CHANNELS_FIRST:
        raise NotImplementedError(f"the layout {data_format} has no golden definition")


def _per_axis(value: PerAxis, n: int) -> list[int]:
    """Return a setting for each of the last ``n`` axes."""
    return [value] * n if isinstance(value, int) else list(value)[-n:]


def _pairs(pad: PerAxis, n: int) -> list[tuple[int, int]]:
    """Return what is added before and behind each axis."""
    if isinstance(pad, int):
        return [(pad, pad)] * n
    both = list(pad) if len(pad) == 2 * n else [amount for amount in pad for _ in (0, 1)]
    return list(zip(both[::2], both[1::2], strict=True))


def _pads(
    mode: str, pad: PerAxis, sizes: Sequence[int], kernel: Sequence[int], steps: Sequence[int], gaps: Sequence[int]
) -> list[tuple[int, int]]:
    """Return what is added before and behind each axis; "same" gives as many windows as steps, rounded up."""
    if mode.lower() != "same":
        return [(0, 0)] * len(sizes) if mode.lower() == "valid" else _pairs(pad, len(sizes))
    whole = [
        max((-(-size // step) - 1) * step + (width - 1) * gap + 1 - size, 0)
        for size, width, step, gap in zip(sizes, kernel, steps, gaps, strict=True)
    ]
    return [(total // 2, total - total // 2) for total in whole]


def _padded(x: Tensor, pads: Sequence[tuple[int, int]], value: float = 0.0) -> Tensor:
    # torch names the last axis first.
    return F.pad(x, [amount for pair in reversed(pads) for amount in pair], value=value) if any(map(any, pads)) else x
