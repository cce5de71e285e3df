"""Boxes as differences from anchors, one box at a time."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tests.support.cann.operators.box_numbers import like, numbers
from tests.support.cann.operators.by_schema import Arguments, by_schema


@by_schema
def npu_bounding_box_encode(args: Arguments) -> Tensor:
    means, deviations = _moments(args)
    rows = []
    for a, b in zip(numbers(args.anchor_box), numbers(args.ground_truth_box), strict=True):
        w, h, w2, h2 = a[2] - a[0] + 1, a[3] - a[1] + 1, b[2] - b[0] + 1, b[3] - b[1] + 1
        x, y = (b[0] + b[2] - a[0] - a[2]) / 2, (b[1] + b[3] - a[1] - a[3]) / 2
        rows.append([x / w, y / h, math.log(abs(w2 / w)), math.log(abs(h2 / h))])
    return like((np.array(rows) - means) / deviations, args.anchor_box)


@by_schema
def npu_bounding_box_decode(args: Arguments) -> Tensor:
    means, deviations = _moments(args)
    rows = []
    for a, d in zip(numbers(args.rois), numbers(args.deltas) * deviations + means, strict=True):
        w, h = a[2] - a[0] + 1, a[3] - a[1] + 1
        most = abs(math.log(args.wh_ratio_clip))
        x, y = (a[0] + a[2]) / 2 + d[0] * w, (a[1] + a[3]) / 2 + d[1] * h
        w, h = w * math.exp(min(max(d[2], -most), most)), h * math.exp(min(max(d[3], -most), most))
        ends = [x - (w - 1) / 2, y - (h - 1) / 2, x + (w - 1) / 2, y + (h - 1) / 2]
        last = [args.max_shape[1] - 1, args.max_shape[0] - 1] * 2
        rows.append([min(max(end, 0), stop) for end, stop in zip(ends, last, strict=True)])
    return like(rows, args.rois)


@by_schema
def npu_rotated_box_encode(args: Arguments) -> Tensor:
    a, b = numbers(args.self), numbers(args.gt_bboxes)
    w, h = a[:, 2] - a[:, 0], a[:, 3] - a[:, 1]
    rows = [
        (b[:, 0] + b[:, 2] - a[:, 0] - a[:, 2]) / 2 / w,
        (b[:, 1] + b[:, 3] - a[:, 1] - a[:, 3]) / 2 / h,
        np.log((b[:, 2] - b[:, 0]) / w),
        np.log((b[:, 3] - b[:, 1]) / h),
        np.tan(np.radians(b[:, 4])) - np.tan(np.radians(a[:, 4])),
    ]
    return like(np.stack(rows, 1) * numbers(args.weight)[:, None], args.self)


@by_schema
def npu_rotated_box_decode(args: Arguments) -> Tensor:
    a, d = numbers(args.self), numbers(args.deltas) / numbers(args.weight)[:, None]
    w, h = a[:, 2] - a[:, 0], a[:, 3] - a[:, 1]
    x, y = (a[:, 0] + a[:, 2]) / 2 + d[:, 0] * w, (a[:, 1] + a[:, 3]) / 2 + d[:, 1] * h
    w, h = w * np.exp(d[:, 2]), h * np.exp(d[:, 3])
    angle = np.degrees(np.arctan(np.tan(np.radians(a[:, 4])) + d[:, 4]))
    return like(np.stack([x - w / 2, y - h / 2, x + w / 2, y + h / 2, angle], 1), args.self)


@by_schema
def npu_yolo_boxes_encode(args: Arguments) -> Tensor:
    rows = []
    for a, b, s in zip(numbers(args.self), numbers(args.gt_bboxes), numbers(args.stride), strict=True):
        x, y = ((b[i] + b[i + 2] - a[i] - a[i + 2]) / 2 / s + 0.5 for i in (0, 1))
        w, h = ((b[i + 2] - b[i]) / (a[i + 2] - a[i]) for i in (0, 1))
        rows.append([*np.clip([x, y], 1e-6, 1 - 1e-6), *np.log(np.maximum([w, h], 1e-6))])
    return like(rows, args.self)


@by_schema
def npu_anchor_response_flags(args: Arguments) -> Tensor:
    flags = np.zeros((*args.featmap_size, args.num_base_anchors), np.uint8)
    for a in numbers(args.self):
        column, row = math.floor((a[0] + a[2]) / 2 / args.stride[0]), math.floor((a[1] + a[3]) / 2 / args.stride[1])
        if 0 <= row < args.featmap_size[0] and 0 <= column < args.featmap_size[1]:
            flags[row, column] = 1
    return torch.from_numpy(flags.ravel())


@by_schema
def npu_grid_assign_positive(args: Arguments) -> Tensor:
    found, able = numbers(args.self).copy(), numbers(args.box_responsible_flags)
    for n in range(len(found)):
        if able[n] and args.max_overlaps[n] > args.pos_iou_thr:
            found[n] = int(args.argmax_overlaps[n]) + 1
    for k in range(min(args.num_gts, len(args.overlaps))):
        if args.gt_max_overlaps[k] > args.min_pos_iou:
            for n in range(len(found)):
                best = (
                    args.overlaps[k, n] == args.gt_max_overlaps[k]
                    if args.gt_max_assign_all
                    else n == int(args.gt_argmax_overlaps[k])
                )
                if best and able[n]:
                    found[n] = k + 1
    return like(found, args.self)


def _moments(args: Arguments) -> tuple[Any, Any]:
    means, deviations = ([getattr(args, f"{name}{i}") for i in range(4)] for name in ("means", "stds"))
    return np.array(means), np.array(deviations)
