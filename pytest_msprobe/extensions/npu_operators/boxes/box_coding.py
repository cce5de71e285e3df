"""Boxes as differences from anchors, and the assignment of anchors to boxes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from pytest_msprobe.engine.replay.ops.operators import golden
from pytest_msprobe.engine.replay.ops.traits import OpInfo
from pytest_msprobe.extensions.npu_operators import boxes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

_ANCHORS_AND_TRUTH = OpInfo(
    constraint=boxes.in_order((0, "self"), (0, "anchor_box"), (1, "ground_truth_box"), (1, "gt_bboxes"))
)

# The smallest quotient and the margin of a cell in YOLO's coding, as in mmdet's YOLOBBoxCoder.
_LEAST = 1e-6


@golden("NPU.npu_bounding_box_encode", _ANCHORS_AND_TRUTH)
def npu_bounding_box_encode(
    anchor_box: Tensor, ground_truth_box: Tensor, means0: float, means1: float, means2: float, means3: float,
    stds0: float, stds1: float, stds2: float, stds3: float,
) -> Tensor:  # fmt: skip
    """Return the differences (N, 4) by which the anchors become the true boxes, both (N, 4) in x0, y0, x1, y1.

    Those of the centre in widths and heights and the logarithm of the ratio of the sizes, less the means and divided
    by the deviations (Ren et al., Faster R-CNN, 2015); sizes count the last pixel. A negative ratio counts as
    positive, as in the documentation's example.
    """
    x, y, width, height = _centre(anchor_box)
    x_true, y_true, width_true, height_true = _centre(ground_truth_box)
    ratios = [(width_true / width).abs().log(), (height_true / height).abs().log()]
    differences = torch.stack([(x_true - x) / width, (y_true - y) / height, *ratios], -1)
    means, deviations = (anchor_box.new_tensor(values) for values in _four(locals()))
    return (differences - means) / deviations


@golden("NPU.npu_bounding_box_decode", OpInfo(constraint=boxes.in_order((0, "rois"))))
def npu_bounding_box_decode(
    rois: Tensor, deltas: Tensor, means0: float, means1: float, means2: float, means3: float, stds0: float,
    stds1: float, stds2: float, stds3: float, max_shape: Sequence[int], wh_ratio_clip: float,
) -> Tensor:  # fmt: skip
    """Undo :func:`npu_bounding_box_encode` for ``rois`` (N, 4) and their differences (N, 4), within an image.

    The logarithms of the ratios are cut at those of ``wh_ratio_clip``, coordinates at the last pixel of ``max_shape``
    (height, width).
    """
    means, deviations = (rois.new_tensor(values) for values in _four(locals()))
    dx, dy, dw, dh = (deltas * deviations + means).unbind(-1)
    x, y, width, height = _centre(rois)
    limit = abs(math.log(wh_ratio_clip))
    half_width = width * dw.clamp(-limit, limit).exp() / 2 - 0.5
    half_height = height * dh.clamp(-limit, limit).exp() / 2 - 0.5
    x, y = x + width * dx, y + height * dy
    last_row, last_column = (size - 1 for size in (max_shape if len(max_shape) == 2 else [*max_shape] * 2))
    corners = [x - half_width, y - half_height, x + half_width, y + half_height]
    limits = [last_column, last_row, last_column, last_row]
    return torch.stack([values.clamp(0, last) for values, last in zip(corners, limits, strict=True)], -1)


@golden("NPU.npu_rotated_box_encode", OpInfo(constraint=boxes.in_order((0, "self"), (1, "gt_bboxes"), dim=1)))
def npu_rotated_box_encode(self: Tensor, gt_bboxes: Tensor, weight: Tensor) -> Tensor:
    """Return the differences (B, 5, N) by which turned anchors become the true boxes, times ``weight`` (5).

    Boxes are x0, y0, x1, y1 and an angle in degrees; the last difference is that of the angles' tangents.
    """
    x, y, width, height, angle = _turned(self)
    x_true, y_true, width_true, height_true, angle_true = _turned(gt_bboxes)
    differences = [
        (x_true - x) / width,
        (y_true - y) / height,
        (width_true / width).log(),
        (height_true / height).log(),
        angle_true.tan() - angle.tan(),
    ]
    return torch.stack(differences, 1) * weight.reshape(1, 5, 1)


@golden("NPU.npu_rotated_box_decode", OpInfo(constraint=boxes.in_order((0, "self"), dim=1)))
def npu_rotated_box_decode(self: Tensor, deltas: Tensor, weight: Tensor) -> Tensor:
    """Undo :func:`npu_rotated_box_encode`: anchors and differences are (B, 5, N), the angle is in degrees."""
    dx, dy, dw, dh, turn = (deltas / weight.reshape(1, 5, 1)).unbind(1)
    x, y, width, height, angle = _turned(self)
    x, y = x + dx * width, y + dy * height
    half_width, half_height = width * dw.exp() / 2, height * dh.exp() / 2
    degrees = torch.rad2deg(torch.atan(angle.tan() + turn))
    return torch.stack([x - half_width, y - half_height, x + half_width, y + half_height, degrees], 1)


@golden("NPU.npu_yolo_boxes_encode", _ANCHORS_AND_TRUTH)
def npu_yolo_boxes_encode(self: Tensor, gt_bboxes: Tensor, stride: Tensor, performance_mode: bool = False) -> Tensor:
    """Return how far (N, 4) true boxes lie in their anchor's cell, and the logarithms of the ratios of the sizes.

    ``stride`` (N) is the size of the cells; the place in a cell is between 1e-6 and 1 - 1e-6 (mmdet's YOLOBBoxCoder).
    ``performance_mode`` allows the kernel lower precision.
    """
    x, y, width, height = _centre(self, last_pixel=0)
    x_true, y_true, width_true, height_true = _centre(gt_bboxes, last_pixel=0)
    places = [((true - own) / stride + 0.5).clamp(_LEAST, 1 - _LEAST) for true, own in ((x_true, x), (y_true, y))]
    ratios = [(true / own).clamp(min=_LEAST).log() for true, own in ((width_true, width), (height_true, height))]
    return torch.stack([*places, *ratios], -1)


@golden("NPU.npu_anchor_response_flags")
def npu_anchor_response_flags(
    self: Tensor, featmap_size: Sequence[int], stride: Sequence[int], num_base_anchors: int
) -> Tensor:
    """Return 1 for each anchor in whose cell a box of self (n, 4) has its centre, 0 for the others, as uint8.

    There are ``num_base_anchors`` in each cell of ``featmap_size`` (height, width); cells are ``stride`` (x, y) apart.
    Centres outside of the map count for nothing (assumed).
    """
    height, width = featmap_size
    column = ((self[:, 0] + self[:, 2]) / 2 / stride[0]).floor().long()
    row = ((self[:, 1] + self[:, 3]) / 2 / stride[1]).floor().long()
    inside = (column >= 0) & (column < width) & (row >= 0) & (row < height)
    flags = torch.zeros(height * width, dtype=torch.uint8, device=self.device)
    flags[(row * width + column)[inside]] = 1
    return flags.repeat_interleave(num_base_anchors)


@golden("NPU.npu_grid_assign_positive")
def npu_grid_assign_positive(
    self: Tensor, overlaps: Tensor, box_responsible_flags: Tensor, max_overlaps: Tensor,
    argmax_overlaps: Tensor, gt_max_overlaps: Tensor, gt_argmax_overlaps: Tensor, num_gts: int,
    pos_iou_thr: float, min_pos_iou: float, gt_max_assign_all: bool,
) -> Tensor:  # fmt: skip
    """Return self (n) with the numbers, from 1 on, of the true boxes that anchors are assigned to.

    First an anchor that is responsible and overlaps a box by more than ``pos_iou_thr``; then for each box, in their
    order, the anchor, or with ``gt_max_assign_all`` all anchors, that overlap it most, if by more than
    ``min_pos_iou`` and responsible (mmdet's GridAssigner). ``overlaps`` is (k, n), the next two (n), those of the
    true boxes (k).
    """
    responsible = box_responsible_flags.bool()
    assigned = self.clone()
    positive = (max_overlaps > pos_iou_thr) & responsible
    assigned[positive] = (argmax_overlaps[positive] + 1).to(assigned.dtype)
    for box in range(min(int(num_gts), len(overlaps))):
        if not gt_max_overlaps[box] > min_pos_iou:
            continue
        selected = torch.zeros_like(responsible)
        if gt_max_assign_all:
            selected = overlaps[box] == gt_max_overlaps[box]
        else:
            selected[gt_argmax_overlaps[box].long()] = True
        assigned[selected & responsible] = box + 1
    return assigned


def _four(arguments: dict[str, object]) -> tuple[list[object], list[object]]:
    return [arguments[f"means{i}"] for i in range(4)], [arguments[f"stds{i}"] for i in range(4)]


def _centre(boxes: Tensor, last_pixel: int = 1) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    x0, y0, x1, y1 = boxes.unbind(-1)
    return (x0 + x1) / 2, (y0 + y1) / 2, x1 - x0 + last_pixel, y1 - y0 + last_pixel


def _turned(boxes: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    x0, y0, x1, y1, degrees = boxes.unbind(1)
    return (x0 + x1) / 2, (y0 + y1) / 2, x1 - x0, y1 - y0, torch.deg2rad(degrees)
