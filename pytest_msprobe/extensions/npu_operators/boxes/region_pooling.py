"""Features pooled from regions of an image."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from pytest_msprobe.extensions.npu_operators.reference_arguments import refuse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor


def npu_roi_align(
    self: Tensor,
    rois: Tensor,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    sample_num: int,
    roi_end_mode: int,
) -> Tensor:
    """Return the features (N, C, pooled_height, pooled_width) of regions of self (B, C, H, W) (He et al., 2017).

    A region of ``rois`` (N, 5) is an image's number and two corners, which ``spatial_scale`` brings to the features.
    It has at least one pixel a side and is cut into cells, of each of which ``sample_num`` times as many points are
    averaged, linearly between pixels; 0 for as many as the cell has pixels, rounded up. With ``roi_end_mode`` 1 the
    far corner is one pixel of the image further. Raises NotImplementedError for other modes.
    """
    refuse("npu_roi_align", roi_end_mode=None if roi_end_mode in (0, 1) else roi_end_mode)
    pooled = []
    for image, x0, y0, x1, y1 in rois.double().tolist():
        x0, y0 = x0 * spatial_scale, y0 * spatial_scale
        x1, y1 = ((end + roi_end_mode) * spatial_scale for end in (x1, y1))
        rows = _points(y0, max(y1 - y0, 1.0), pooled_height, sample_num)
        columns = _points(x0, max(x1 - x0, 1.0), pooled_width, sample_num)
        across = _weights(rows, self.shape[2], self.dtype) @ self[int(image)]
        pooled.append(across @ _weights(columns, self.shape[3], self.dtype).T)
    return torch.stack(pooled) if pooled else self.new_zeros(0, self.shape[1], pooled_height, pooled_width)


def npu_roi_alignbk(
    self: Tensor,
    rois: Tensor,
    xdiff_shape: Sequence[int],
    pooled_width: int,
    pooled_height: int,
    spatial_scale: float,
    sample_num: int,
    roi_end_mode: int | None = None,
) -> Tensor:
    """Return the gradient of :func:`npu_roi_align` for its features, of ``xdiff_shape``; self arrives."""
    mode = 0 if roi_end_mode is None else roi_end_mode
    with torch.enable_grad():
        features = self.new_zeros(list(xdiff_shape)).requires_grad_()
        pooled = npu_roi_align(features, rois, spatial_scale, pooled_height, pooled_width, sample_num, mode)
    return torch.autograd.grad(pooled, features, self)[0]


def npu_ps_roi_pooling(self: Tensor, rois: Tensor, spatial_scale: float, group_size: int, output_dim: int) -> Tensor:
    """Return position-sensitive averages (B n, output_dim, group_size, group_size) (Dai et al., R-FCN, 2016).

    A region of ``rois`` (B, 5, n) is an image's number and two corners, rounded, the far one moved by a pixel, and
    scaled. Cell (i, j) of channel c is the mean of the pixels of channel (c group_size + i) group_size + j in it, 0
    for a cell without pixels.
    """
    found = []
    for image, x0, y0, x1, y1 in rois.double().permute(0, 2, 1).reshape(-1, 5).tolist():
        left, top = (_half_away(start) * spatial_scale for start in (x0, y0))
        right, bottom = ((_half_away(end) + 1) * spatial_scale for end in (x1, y1))
        rows = _cells(top, max(bottom - top, 0.1), group_size, self.shape[2], self.dtype)
        columns = _cells(left, max(right - left, 0.1), group_size, self.shape[3], self.dtype)
        scores = self[int(image) % len(self)].reshape(-1, group_size, group_size, *self.shape[2:])[:output_dim]
        found.append(torch.einsum("ih,cijhw,jw->cij", rows, scores, columns))
    return torch.stack(found) if found else self.new_zeros(0, output_dim, group_size, group_size)


def npu_ps_roi_pooling_backward(
    output_grad: Tensor,
    rois: Tensor,
    spatial_scale: float,
    group_size: int,
    output_dim: int,
    input_size: Sequence[int],
) -> Tensor:
    """Return the gradient of :func:`npu_ps_roi_pooling` for its features (B, channels, *input_size)."""
    with torch.enable_grad():
        channels = group_size * group_size * output_dim
        features = output_grad.new_zeros(len(rois), channels, *list(input_size)[-2:]).requires_grad_()
        pooled = npu_ps_roi_pooling(features, rois, spatial_scale, group_size, output_dim)
    return torch.autograd.grad(pooled, features, output_grad.reshape(pooled.shape))[0]


def _points(start: float, length: float, cells: int, sample_num: int) -> list[list[float]]:
    """Return the places along a side that each cell's mean is of."""
    size = length / cells
    count = sample_num or math.ceil(size)
    return [[start + size * (cell + (point + 0.5) / count) for point in range(count)] for cell in range(cells)]


def _weights(points: list[list[float]], size: int, dtype: torch.dtype) -> Tensor:
    """Return the share (cells, size) that each pixel along a side has in each cell's mean."""
    weights = torch.zeros(len(points), size, dtype=torch.float64)
    for cell, places in enumerate(points):
        for place in places:
            if not -1 <= place <= size:
                continue
            inside = min(max(place, 0.0), size - 1.0)
            first = min(int(inside), max(size - 2, 0))
            weights[cell, first] += (1 - (inside - first)) / len(places)
            if first + 1 < size:
                weights[cell, first + 1] += (inside - first) / len(places)
    return weights.to(dtype)


def _cells(start: float, length: float, cells: int, size: int, dtype: torch.dtype) -> Tensor:
    """Return for each cell along a side (cells, size) the share of each pixel in a mean over that side."""
    weights = torch.zeros(cells, size, dtype=dtype)
    for cell in range(cells):
        first = min(max(math.floor(start + cell * length / cells), 0), size)
        last = min(max(math.ceil(start + (cell + 1) * length / cells), 0), size)
        if last > first:
            weights[cell, first:last] = 1 / (last - first)
    return weights


def _half_away(number: float) -> float:
    return math.floor(abs(number) + 0.5) * (1 if number >= 0 else -1)
