"""Features pooled from regions, by the weight of each pixel in each cell."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tests.support.cann.operators.box_numbers import like, numbers
from tests.support.cann.operators.by_schema import Arguments, by_schema


@by_schema
def npu_roi_align(args: Arguments) -> Tensor:
    found = torch.zeros(
        len(args.rois), args.self.shape[1], args.pooled_height, args.pooled_width, dtype=args.self.dtype
    )
    for n, (image, weights) in enumerate(
        _samples(
            args.self,
            args.rois,
            args.spatial_scale,
            args.pooled_height,
            args.pooled_width,
            args.sample_num,
            args.roi_end_mode,
        )
    ):
        found[n] = like(np.einsum("ijhw,chw->cij", weights, numbers(args.self[image])), args.self)
    return found


@by_schema
def npu_roi_alignbk(args: Arguments) -> Tensor:
    features = torch.zeros(list(args.xdiff_shape), dtype=args.self.dtype)
    found = np.zeros(features.shape)
    for n, (image, weights) in enumerate(
        _samples(
            features,
            args.rois,
            args.spatial_scale,
            args.pooled_height,
            args.pooled_width,
            args.sample_num,
            args.roi_end_mode or 0,
        )
    ):
        found[image] += np.einsum("ijhw,cij->chw", weights, numbers(args.self[n]))
    return like(found, args.self)


@by_schema
def npu_ps_roi_pooling(args: Arguments) -> Tensor:
    found = torch.zeros(
        args.rois.shape[0] * args.rois.shape[2],
        args.output_dim,
        args.group_size,
        args.group_size,
        dtype=args.self.dtype,
    )
    for n, c, i, j, image, channel, window in _windows(
        args.rois, args.self.shape, args.spatial_scale, args.group_size, args.output_dim
    ):
        part = numbers(args.self)[image, channel][window]
        found[n, c, i, j] = float(part.mean()) if part.size else 0.0
    return found


@by_schema
def npu_ps_roi_pooling_backward(args: Arguments) -> Tensor:
    shape = (len(args.rois), args.group_size**2 * args.output_dim, *list(args.input_size)[-2:])
    found, arrived = np.zeros(shape), numbers(args.output_grad)
    for n, c, i, j, image, channel, window in _windows(
        args.rois, shape, args.spatial_scale, args.group_size, args.output_dim
    ):
        part = found[image, channel][window]
        if part.size:
            part += arrived[n, c, i, j] / part.size
    return like(found, args.output_grad)


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
