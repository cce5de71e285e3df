"""The search for a scale by which numbers are quantized with the least error."""

from __future__ import annotations

import torch
from torch import Tensor

_LOWEST, _HIGHEST = -128, 127
# float32's epsilon: scales below it are taken for none
_NO_SCALE = 2.0**-23


def npu_ifmr(
    data: Tensor, data_min: Tensor, data_max: Tensor, cumsum: Tensor, min_percentile: float,
    max_percentile: float, search_start: float, search_end: float, search_step: float, with_offset: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return (scale, offset), in the shape of ``data_min``: of 8 bits, with the least squared error over ``data``.

    ``cumsum`` counts the numbers up to each bin of a histogram from ``data_min`` to ``data_max``. The range begins
    where 1 - ``min_percentile`` of them and ends where ``max_percentile`` of them are reached; its end is tried times
    ``search_start``, ``search_start`` + ``search_step`` and so on below ``search_end``. ``with_offset`` takes the
    range as it is, widened to hold 0; otherwise it is symmetric and the offset 0 (op-plugin's tests).

    Of two scales whose errors differ by rounding the device may take the other; they are ``search_step`` apart.
    """
    low, high = data_min.flatten()[0], data_max.flatten()[0]
    share = cumsum.to(data.dtype) / data.numel()
    bin_width = (high - low) / len(cumsum)
    end = (share < max_percentile).sum() * bin_width + low
    start = (share < 1 - min_percentile).sum() * bin_width + low
    count = max(0, int(torch.tensor((search_end - search_start) / search_step, dtype=torch.float32).ceil()))
    steps = search_start + search_step * torch.arange(count, dtype=data.dtype)
    if with_offset:
        start, end = start.clamp(max=0), end.clamp(min=0)
        scales = (end * steps - start) / (_HIGHEST - _LOWEST)
        scales = torch.where(scales < _NO_SCALE, 1.0, scales)
        offsets = -(torch.round(start / scales) - _LOWEST)
    else:
        scales = torch.maximum(start.abs(), end.abs()) * steps / _HIGHEST
        offsets = torch.zeros_like(scales)
    errors = torch.stack([_error(data, scale, offset) for scale, offset in zip(scales, offsets, strict=True)])
    best = errors.argmin()
    return scales[best].view(data_min.shape), offsets[best].view(data_min.shape)


def _error(data: Tensor, scale: Tensor, offset: Tensor) -> Tensor:
    quantized = (torch.round(data / scale) + offset).clamp(_LOWEST, _HIGHEST)
    return ((quantized - offset) * scale - data).square().sum()
