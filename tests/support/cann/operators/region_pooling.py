"""Features pooled from regions, by the weight of each pixel in each cell."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tests.support.cann.operators.box_numbers import like, numbers


def npu_roi_align(
    self: Tensor,
    rois: Tensor,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    sample_num: int,
    roi_end_mode: int,
) -> Tensor:
    found = torch.zeros(len(rois), self.shape[1], pooled_height, pooled_width, dtype=self.dtype)
    for n, (image, weights) in enumerate(_samples(self, rois, spatial_scale, pooled_height, pooled_width, sample_num,
                                                  roi_end_mode)):  # fmt: skip
        found[n] = like(np.einsum("ijhw,chw->cij", weights, numbers(self[image])), self)
    return found


def npu_roi_alignbk(
    self: Tensor,
    rois: Tensor,
    xdiff_shape: Any,
    pooled_width: int,
    pooled_height: int,
    spatial_scale: float,
    sample_num: int,
    roi_end_mode: int | None = None,
) -> Tensor:
    features = torch.zeros(list(xdiff_shape), dtype=self.dtype)
    found = np.zeros(features.shape)
    for n, (image, weights) in enumerate(_samples(features, rois, spatial_scale, pooled_height, pooled_width,
                                                  sample_num, roi_end_mode or 0)):  # fmt: skip
        found[image] += np.einsum("ijhw,cij->chw", weights, numbers(self[n]))
    return like(found, self)


def npu_ps_roi_pooling(self: Tensor, rois: Tensor, spatial_scale: float, group_size: int, output_dim: int) -> Tensor:
    found = torch.zeros(rois.shape[0] * rois.shape[2], output_dim, group_size, group_size, dtype=self.dtype)
    for n, c, i, j, image, channel, window in _windows(rois, self.shape, spatial_scale, group_size, output_dim):
        part = numbers(self)[image, channel][window]
        found[n, c, i, j] = float(part.mean()) if part.size else 0.0
    return found


def npu_ps_roi_pooling_backward(
    output_grad: Tensor, rois: Tensor, spatial_scale: float, group_size: int, output_dim: int, input_size: Any
) -> Tensor:
    shape = (len(rois), group_size**2 * output_dim, *list(input_size)[-2:])
    found, arrived = np.zeros(shape), numbers(output_grad)
    for n, c, i, j, image, channel, window in _windows(rois, shape, spatial_scale, group_size, output_dim):
        part = found[image, channel][window]
        if part.size:
            part += arrived[n, c, i, j] / part.size
    return like(found, output_grad)


def _windows(rois: Tensor, shape: Any, scale: float, group: int, output_dim: int) -> Any:
    for n, (image, x0, y0, x1, y1) in enumerate(numbers(rois).transpose(0, 2, 1).reshape(-1, 5)):
        left, top = (math.floor(abs(v) + 0.5) * np.sign(v) * scale for v in (x0, y0))
        right, bottom = ((math.floor(abs(v) + 0.5) * np.sign(v) + 1) * scale for v in (x1, y1))
        w, h = max(right - left, 0.1) / group, max(bottom - top, 0.1) / group
        for c in range(output_dim):
            for i in range(group):
                for j in range(group):
                    rows = slice(
                        *(int(np.clip(v, 0, shape[2])) for v in (math.floor(top + i * h), math.ceil(top + (i + 1) * h)))
                    )
                    columns = slice(
                        *(
                            int(np.clip(v, 0, shape[3]))
                            for v in (math.floor(left + j * w), math.ceil(left + (j + 1) * w))
                        )
                    )
                    yield n, c, i, j, int(image) % shape[0], (c * group + i) * group + j, (rows, columns)


def _samples(features: Tensor, rois: Tensor, scale: float, height: int, width: int, sample_num: int, end: int) -> Any:
    """Yield the image of each region and the weight (height, width, H, W) of each pixel in each cell."""
    rows, columns = features.shape[2:]
    for image, x0, y0, x1, y1 in numbers(rois):
        left, top = x0 * scale, y0 * scale
        w, h = max((x1 + end) * scale - left, 1.0) / width, max((y1 + end) * scale - top, 1.0) / height
        across, down = sample_num or math.ceil(w), sample_num or math.ceil(h)
        weights = np.zeros((height, width, rows, columns))
        for i, j, a, b in np.ndindex(height, width, down, across):
            y, x = top + h * (i + (a + 0.5) / down), left + w * (j + (b + 0.5) / across)
            if -1 <= y <= rows and -1 <= x <= columns:
                y, x = min(max(y, 0), rows - 1), min(max(x, 0), columns - 1)
                for r in {math.floor(y), math.ceil(y)}:
                    for c in {math.floor(x), math.ceil(x)}:
                        weights[i, j, r, c] += (1 - abs(y - r)) * (1 - abs(x - c)) / (down * across)
        yield int(image), weights
