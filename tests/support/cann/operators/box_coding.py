"""Boxes as differences from anchors, one box at a time."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tests.support.cann.operators.box_numbers import like, numbers


def npu_bounding_box_encode(anchor_box: Tensor, ground_truth_box: Tensor, *moments: float, **named: float) -> Tensor:
    means, deviations = _moments(moments, named)
    rows = []
    for a, b in zip(numbers(anchor_box), numbers(ground_truth_box), strict=True):
        w, h, w2, h2 = a[2] - a[0] + 1, a[3] - a[1] + 1, b[2] - b[0] + 1, b[3] - b[1] + 1
        x, y = (b[0] + b[2] - a[0] - a[2]) / 2, (b[1] + b[3] - a[1] - a[3]) / 2
        rows.append([x / w, y / h, math.log(abs(w2 / w)), math.log(abs(h2 / h))])
    return like((np.array(rows) - means) / deviations, anchor_box)


def npu_bounding_box_decode(rois: Tensor, deltas: Tensor, *rest: Any, **named: Any) -> Tensor:
    *moments, max_shape, clip = (*rest, *(named.pop(name) for name in ("max_shape", "wh_ratio_clip") if name in named))
    means, deviations = _moments(moments, named)
    rows = []
    for a, d in zip(numbers(rois), numbers(deltas) * deviations + means, strict=True):
        w, h = a[2] - a[0] + 1, a[3] - a[1] + 1
        most = -math.log(clip) if clip < 1 else math.log(clip)
        x, y = (a[0] + a[2]) / 2 + d[0] * w, (a[1] + a[3]) / 2 + d[1] * h
        w, h = w * math.exp(min(max(d[2], -most), most)), h * math.exp(min(max(d[3], -most), most))
        ends = [x - (w - 1) / 2, y - (h - 1) / 2, x + (w - 1) / 2, y + (h - 1) / 2]
        last = [max_shape[1] - 1, max_shape[0] - 1] * 2
        rows.append([min(max(end, 0), stop) for end, stop in zip(ends, last, strict=True)])
    return like(rows, rois)


def npu_rotated_box_encode(self: Tensor, gt_bboxes: Tensor, weight: Tensor) -> Tensor:
    a, b = numbers(self), numbers(gt_bboxes)
    w, h = a[:, 2] - a[:, 0], a[:, 3] - a[:, 1]
    rows = [
        (b[:, 0] + b[:, 2] - a[:, 0] - a[:, 2]) / 2 / w,
        (b[:, 1] + b[:, 3] - a[:, 1] - a[:, 3]) / 2 / h,
        np.log((b[:, 2] - b[:, 0]) / w),
        np.log((b[:, 3] - b[:, 1]) / h),
        np.tan(np.radians(b[:, 4])) - np.tan(np.radians(a[:, 4])),
    ]
    return like(np.stack(rows, 1) * numbers(weight)[:, None], self)


def npu_rotated_box_decode(self: Tensor, deltas: Tensor, weight: Tensor) -> Tensor:
    a, d = numbers(self), numbers(deltas) / numbers(weight)[:, None]
    w, h = a[:, 2] - a[:, 0], a[:, 3] - a[:, 1]
    x, y = (a[:, 0] + a[:, 2]) / 2 + d[:, 0] * w, (a[:, 1] + a[:, 3]) / 2 + d[:, 1] * h
    w, h = w * np.exp(d[:, 2]), h * np.exp(d[:, 3])
    angle = np.degrees(np.arctan(np.tan(np.radians(a[:, 4])) + d[:, 4]))
    return like(np.stack([x - w / 2, y - h / 2, x + w / 2, y + h / 2, angle], 1), self)


def npu_yolo_boxes_encode(self: Tensor, gt_bboxes: Tensor, stride: Tensor, performance_mode: bool = False) -> Tensor:
    rows = []
    for a, b, s in zip(numbers(self), numbers(gt_bboxes), numbers(stride), strict=True):
        x, y = ((b[i] + b[i + 2] - a[i] - a[i + 2]) / 2 / s + 0.5 for i in (0, 1))
        w, h = ((b[i + 2] - b[i]) / (a[i + 2] - a[i]) for i in (0, 1))
        rows.append([*np.clip([x, y], 1e-6, 1 - 1e-6), *np.log(np.maximum([w, h], 1e-6))])
    return like(rows, self)


def npu_anchor_response_flags(self: Tensor, featmap_size: Any, stride: Any, num_base_anchors: int) -> Tensor:
    flags = np.zeros((*featmap_size, num_base_anchors), np.uint8)
    for a in numbers(self):
        column, row = math.floor((a[0] + a[2]) / 2 / stride[0]), math.floor((a[1] + a[3]) / 2 / stride[1])
        if 0 <= row < featmap_size[0] and 0 <= column < featmap_size[1]:
            flags[row, column] = 1
    return torch.from_numpy(flags.ravel())


def npu_grid_assign_positive(
    self: Tensor,
    overlaps: Tensor,
    box_responsible_flags: Tensor,
    max_overlaps: Tensor,
    argmax_overlaps: Tensor,
    gt_max_overlaps: Tensor,
    gt_argmax_overlaps: Tensor,
    num_gts: int,
    pos_iou_thr: float,
    min_pos_iou: float,
    gt_max_assign_all: bool,
) -> Tensor:
    found, able = numbers(self).copy(), numbers(box_responsible_flags)
    for n in range(len(found)):
        if able[n] and max_overlaps[n] > pos_iou_thr:
            found[n] = int(argmax_overlaps[n]) + 1
    for k in range(min(num_gts, len(overlaps))):
        if gt_max_overlaps[k] > min_pos_iou:
            for n in range(len(found)):
                best = overlaps[k, n] == gt_max_overlaps[k] if gt_max_assign_all else n == int(gt_argmax_overlaps[k])
                if best and able[n]:
                    found[n] = k + 1
    return like(found, self)


def _moments(given: Any, named: Any) -> tuple[Any, Any]:
    numbers = [*given, *(named[f"{name}{i}"] for name in ("means", "stds") for i in range(4) if f"{name}{i}" in named)]
    return np.array(numbers[:4]), np.array(numbers[4:8])
