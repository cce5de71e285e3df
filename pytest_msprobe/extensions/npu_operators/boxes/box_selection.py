"""Boxes that suppress others, and regions of features that are pooled."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from pytest_msprobe.engine.replay.ops.operators import golden
from pytest_msprobe.engine.replay.ops.traits import OpInfo
from pytest_msprobe.extensions.npu_operators import boxes
from pytest_msprobe.extensions.npu_operators.arguments import refuse
from pytest_msprobe.extensions.npu_operators.boxes.box_overlap import npu_iou, npu_rotated_iou

if TYPE_CHECKING:
    from collections.abc import Sequence


@golden("NPU.npu_nms_v4", OpInfo(constraint=boxes.in_order((0, "self"))))
def npu_nms_v4(
    self: Tensor,
    scores: Tensor,
    max_output_size: float,
    iou_threshold: Tensor,
    scores_threshold: Tensor,
    pad_to_max_output_size: bool = False,
) -> tuple[Tensor, Tensor]:
    """Return (numbers of the boxes that are kept, best score first, int32; how many there are, int32).

    self is (n, 4) in corners. A box goes whose score is not above ``scores_threshold``, or that overlaps a kept one
    by more than ``iou_threshold``; at most ``max_output_size`` stay. The numbers are filled up with zeros to that
    length: the operator returns that many with and without ``pad_to_max_output_size``.
    """
    overlap = npu_iou(self, self).T
    selected = _kept(overlap, scores, float(iou_threshold), float(scores_threshold), int(max_output_size))
    numbers = torch.zeros(int(max_output_size), dtype=torch.int32)
    numbers[: len(selected)] = torch.tensor(selected, dtype=torch.int32)
    return numbers, torch.tensor(len(selected), dtype=torch.int32)


@golden("NPU.npu_nms_with_mask", OpInfo(constraint=boxes.in_order((0, "input"))))
def npu_nms_with_mask(input: Tensor, iou_threshold: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return (boxes and scores (N, 5), their numbers, int32, 1 for those that are kept and 0 for others, uint8).

    ``input`` (N, 8) holds corners, a score and three numbers that count for nothing, sorted by the score. A box goes
    that overlaps a kept one by more than ``iou_threshold``; no row moves.
    """
    boxes = input[:, :5]
    overlap = npu_iou(boxes[:, :4], boxes[:, :4]).T
    order = -torch.arange(len(boxes), dtype=torch.float64)
    selected = _kept(overlap, order, float(iou_threshold), -torch.inf, len(boxes))
    mask = torch.zeros(len(boxes), dtype=torch.uint8)
    mask[selected] = 1
    return boxes.clone(), torch.arange(len(boxes), dtype=torch.int32), mask


@golden("NPU.npu_nms_rotated", OpInfo(constraint=boxes.turned((0, "self"))))
def npu_nms_rotated(
    self: Tensor,
    scores: Tensor,
    iou_threshold: float,
    scores_threshold: float = 0,
    max_output_size: int = -1,
    mode: int = 0,
) -> tuple[Tensor, Tensor]:
    """Return :func:`npu_nms_v4` of turned boxes (n, 5), centre, size and angle in degrees, without zeros behind.

    How many there are is of shape (1). Raises NotImplementedError for ``mode`` 1, which is documented as not
    supported.
    """
    refuse("npu_nms_rotated", mode=mode or None)
    overlap = npu_rotated_iou(self.unsqueeze(0), self.unsqueeze(0))[0]
    most = len(self) if max_output_size < 0 else max_output_size
    selected = _kept(overlap, scores, iou_threshold, scores_threshold, most)
    return torch.tensor(selected, dtype=torch.int32), torch.tensor([len(selected)], dtype=torch.int32)


@golden("NPU.npu_batch_nms", OpInfo(constraint=boxes.in_order((0, "self"))))
def npu_batch_nms(
    self: Tensor,
    scores: Tensor,
    score_threshold: float,
    iou_threshold: float,
    max_size_per_class: int,
    max_total_size: int,
    change_coordinate_frame: bool = False,
    transpose_box: bool = False,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the best boxes (B, max_total_size, 4), their scores and classes (B, max_total_size), their count (B).

    self is (B, anchors, 1 or classes, 4), ``scores`` (B, anchors, classes). Each class is suppressed by itself, as by
    :func:`npu_nms_v4`, then the best of all classes are kept; what is left of the results is 0. Raises
    NotImplementedError for the last two arguments, whose meaning is open.
    """
    refuse(
        "npu_batch_nms",
        change_coordinate_frame=change_coordinate_frame or None,
        transpose_box=transpose_box or None,
    )
    batch, _, classes = scores.shape
    boxes_out, scores_out = self.new_zeros(batch, max_total_size, 4), scores.new_zeros(batch, max_total_size)
    classes_out, counts = torch.zeros_like(scores_out), torch.zeros(batch, dtype=torch.int32)
    for b in range(batch):
        candidates = []
        for label in range(classes):
            boxes, marks = self[b, :, label if self.shape[2] > 1 else 0], scores[b, :, label]
            selected = _kept(npu_iou(boxes, boxes).T, marks, iou_threshold, score_threshold, max_size_per_class)
            candidates += [(float(marks[i]), label, boxes[i]) for i in selected]
        candidates.sort(key=lambda candidate: -candidate[0])
        counts[b] = min(len(candidates), max_total_size)
        for place, (mark, label, box) in enumerate(candidates[:max_total_size]):
            boxes_out[b, place], scores_out[b, place], classes_out[b, place] = box, mark, label
    return boxes_out, scores_out, classes_out, counts


def _kept(overlap: Tensor, scores: Tensor, iou_threshold: float, score_threshold: float, most: int) -> list[int]:
    selected: list[int] = []
    for number in scores.argsort(descending=True, stable=True).tolist():
        if len(selected) == most or not scores[number] > score_threshold:
            break
        if not any(overlap[number, other] > iou_threshold for other in selected):
            selected.append(number)
    return selected


@golden("NPU.npu_roi_align", OpInfo(constraint=boxes.regions))
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


@golden("NPU.npu_roi_alignbk", OpInfo(constraint=boxes.regions_of_gradient))
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


@golden("NPU.npu_ps_roi_pooling", OpInfo(constraint=boxes.regions))
def npu_ps_roi_pooling(self: Tensor, rois: Tensor, spatial_scale: float, group_size: int, output_dim: int) -> Tensor:
    """Return position-sensitive averages (B n, output_dim, group_size, group_size) (Dai et al., R-FCN, 2016).

    A region of ``rois`` (B, 5, n) is an image's number and two corners, rounded, the far one moved by a pixel, and
    scaled. Cell (i, j) of channel c is the mean of the pixels of channel (c group_size + i) group_size + j in it, 0
    for a cell without pixels.
    """
    pooled = []
    for image, x0, y0, x1, y1 in rois.double().permute(0, 2, 1).reshape(-1, 5).tolist():
        left, top = (_half_away(start) * spatial_scale for start in (x0, y0))
        right, bottom = ((_half_away(end) + 1) * spatial_scale for end in (x1, y1))
        rows = _cells(top, max(bottom - top, 0.1), group_size, self.shape[2], self.dtype)
        columns = _cells(left, max(right - left, 0.1), group_size, self.shape[3], self.dtype)
        scores = self[int(image) % len(self)].reshape(-1, group_size, group_size, *self.shape[2:])[:output_dim]
        pooled.append(torch.einsum("ih,cijhw,jw->cij", rows, scores, columns))
    return torch.stack(pooled) if pooled else self.new_zeros(0, output_dim, group_size, group_size)


@golden("Aten.npu_ps_roi_pooling_backward")
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
