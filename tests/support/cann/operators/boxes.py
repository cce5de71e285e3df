"""The card's operators on boxes, one box at a time in numpy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

Box = Any


def npu_iou(bboxes: Tensor, gtboxes: Tensor, mode: int = 0) -> Tensor:
    return _like([[_iou(a, b, mode) for a in _numbers(bboxes)] for b in _numbers(gtboxes)], bboxes)


def npu_ptiou(bboxes: Tensor, gtboxes: Tensor, mode: int = 0) -> Tensor:
    return npu_iou(bboxes, gtboxes, mode)


def npu_giou(self: Tensor, gtboxes: Tensor, trans: bool = False, is_cross: bool = False, mode: int = 0) -> Tensor:
    return _table(_giou, self, gtboxes, trans, is_cross, mode).T.contiguous()


def npu_diou(self: Tensor, gtboxes: Tensor, trans: bool = False, is_cross: bool = False, mode: int = 0) -> Tensor:
    return _table(_diou, self, gtboxes, trans, is_cross, mode)


def npu_ciou(
    self: Tensor,
    gtboxes: Tensor,
    trans: bool = False,
    is_cross: bool = True,
    mode: int = 0,
    atan_sub_flag: bool = False,
) -> Tensor:
    return _table(_ciou, self, gtboxes, trans, is_cross, mode)


def _npu_ciou(
    self: Tensor,
    gtboxes: Tensor,
    trans: bool = False,
    is_cross: bool = True,
    mode: int = 0,
    atan_sub_flag: bool = False,
) -> tuple[Tensor, Tensor]:
    angles = _table(lambda a, b, _: _turn(b) - _turn(a), self, gtboxes, trans, is_cross, mode)
    return npu_ciou(self, gtboxes, trans, is_cross, mode), angles


def npu_giou_backward(
    grad: Tensor, bboxes: Tensor, gtboxes: Tensor, trans: bool = False, is_cross: bool = False, mode: int = 0
) -> tuple[Tensor, Tensor]:
    return _slopes(_giou, grad, bboxes, gtboxes, trans, mode)


def npu_diou_backward(
    grad: Tensor, bboxes: Tensor, gtboxes: Tensor, trans: bool = False, is_cross: bool = False, mode: int = 0
) -> tuple[Tensor, Tensor]:
    return _slopes(_diou, grad, bboxes, gtboxes, trans, mode)


def npu_ciou_backward(
    grad: Tensor,
    bboxes: Tensor,
    gtboxes: Tensor,
    atan_sub: Tensor | None,
    trans: bool = False,
    is_cross: bool = True,
    mode: int = 0,
) -> tuple[Tensor, Tensor]:
    return _slopes(_ciou, grad, bboxes, gtboxes, trans, mode)


def npu_bounding_box_encode(anchor_box: Tensor, ground_truth_box: Tensor, *moments: float, **named: float) -> Tensor:
    means, deviations = _moments(moments, named)
    rows = []
    for a, b in zip(_numbers(anchor_box), _numbers(ground_truth_box), strict=True):
        w, h, w2, h2 = a[2] - a[0] + 1, a[3] - a[1] + 1, b[2] - b[0] + 1, b[3] - b[1] + 1
        x, y = (b[0] + b[2] - a[0] - a[2]) / 2, (b[1] + b[3] - a[1] - a[3]) / 2
        rows.append([x / w, y / h, math.log(abs(w2 / w)), math.log(abs(h2 / h))])
    return _like((np.array(rows) - means) / deviations, anchor_box)


def npu_bounding_box_decode(rois: Tensor, deltas: Tensor, *rest: Any, **named: Any) -> Tensor:
    *moments, max_shape, clip = (*rest, *(named.pop(name) for name in ("max_shape", "wh_ratio_clip") if name in named))
    means, deviations = _moments(moments, named)
    rows = []
    for a, d in zip(_numbers(rois), _numbers(deltas) * deviations + means, strict=True):
        w, h = a[2] - a[0] + 1, a[3] - a[1] + 1
        most = -math.log(clip) if clip < 1 else math.log(clip)
        x, y = (a[0] + a[2]) / 2 + d[0] * w, (a[1] + a[3]) / 2 + d[1] * h
        w, h = w * math.exp(min(max(d[2], -most), most)), h * math.exp(min(max(d[3], -most), most))
        ends = [x - (w - 1) / 2, y - (h - 1) / 2, x + (w - 1) / 2, y + (h - 1) / 2]
        last = [max_shape[1] - 1, max_shape[0] - 1] * 2
        rows.append([min(max(end, 0), stop) for end, stop in zip(ends, last, strict=True)])
    return _like(rows, rois)


def npu_rotated_box_encode(self: Tensor, gt_bboxes: Tensor, weight: Tensor) -> Tensor:
    a, b = _numbers(self), _numbers(gt_bboxes)
    w, h = a[:, 2] - a[:, 0], a[:, 3] - a[:, 1]
    rows = [
        (b[:, 0] + b[:, 2] - a[:, 0] - a[:, 2]) / 2 / w,
        (b[:, 1] + b[:, 3] - a[:, 1] - a[:, 3]) / 2 / h,
        np.log((b[:, 2] - b[:, 0]) / w),
        np.log((b[:, 3] - b[:, 1]) / h),
        np.tan(np.radians(b[:, 4])) - np.tan(np.radians(a[:, 4])),
    ]
    return _like(np.stack(rows, 1) * _numbers(weight)[:, None], self)


def npu_rotated_box_decode(self: Tensor, deltas: Tensor, weight: Tensor) -> Tensor:
    a, d = _numbers(self), _numbers(deltas) / _numbers(weight)[:, None]
    w, h = a[:, 2] - a[:, 0], a[:, 3] - a[:, 1]
    x, y = (a[:, 0] + a[:, 2]) / 2 + d[:, 0] * w, (a[:, 1] + a[:, 3]) / 2 + d[:, 1] * h
    w, h = w * np.exp(d[:, 2]), h * np.exp(d[:, 3])
    angle = np.degrees(np.arctan(np.tan(np.radians(a[:, 4])) + d[:, 4]))
    return _like(np.stack([x - w / 2, y - h / 2, x + w / 2, y + h / 2, angle], 1), self)


def npu_yolo_boxes_encode(self: Tensor, gt_bboxes: Tensor, stride: Tensor, performance_mode: bool = False) -> Tensor:
    rows = []
    for a, b, s in zip(_numbers(self), _numbers(gt_bboxes), _numbers(stride), strict=True):
        x, y = ((b[i] + b[i + 2] - a[i] - a[i + 2]) / 2 / s + 0.5 for i in (0, 1))
        w, h = ((b[i + 2] - b[i]) / (a[i + 2] - a[i]) for i in (0, 1))
        rows.append([*np.clip([x, y], 1e-6, 1 - 1e-6), *np.log(np.maximum([w, h], 1e-6))])
    return _like(rows, self)


def npu_anchor_response_flags(self: Tensor, featmap_size: Any, stride: Any, num_base_anchors: int) -> Tensor:
    flags = np.zeros((*featmap_size, num_base_anchors), np.uint8)
    for a in _numbers(self):
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
    found, able = _numbers(self).copy(), _numbers(box_responsible_flags)
    for n in range(len(found)):
        if able[n] and max_overlaps[n] > pos_iou_thr:
            found[n] = int(argmax_overlaps[n]) + 1
    for k in range(min(num_gts, len(overlaps))):
        if gt_max_overlaps[k] > min_pos_iou:
            for n in range(len(found)):
                best = overlaps[k, n] == gt_max_overlaps[k] if gt_max_assign_all else n == int(gt_argmax_overlaps[k])
                if best and able[n]:
                    found[n] = k + 1
    return _like(found, self)


def npu_rotated_overlaps(self: Tensor, query_boxes: Tensor, trans: bool = False) -> Tensor:
    return _like(_turned_common(self, query_boxes, trans)[0], self)


def npu_rotated_iou(
    self: Tensor,
    query_boxes: Tensor,
    trans: bool = False,
    mode: int = 0,
    is_cross: bool = True,
    v_threshold: float = 0.0,
    e_threshold: float = 0.0,
) -> Tensor:
    common, one, other = _turned_common(self, query_boxes, trans)
    found = common / (np.broadcast_to(one, common.shape) if mode else one + other - common)
    return _like(found if is_cross else np.stack([np.diag(each) for each in found]), self)


def npu_nms_v4(
    self: Tensor,
    scores: Tensor,
    max_output_size: float,
    iou_threshold: Tensor,
    scores_threshold: Tensor,
    pad_to_max_output_size: bool = False,
) -> tuple[Tensor, Tensor]:
    kept = _survivors(_numbers(self), _numbers(scores), float(iou_threshold), float(scores_threshold))
    kept = kept[: int(max_output_size)]
    filled = kept + [0] * (int(max_output_size) - len(kept))
    return torch.tensor(filled, dtype=torch.int32), torch.tensor(len(kept), dtype=torch.int32)


def npu_nms_with_mask(input: Tensor, iou_threshold: float) -> tuple[Tensor, Tensor, Tensor]:  # noqa: A002
    rows = _numbers(input)
    kept = _survivors(rows[:, :4], -np.arange(len(rows)), float(iou_threshold), -math.inf)
    mask = torch.tensor([n in kept for n in range(len(rows))]).to(torch.uint8)
    return input[:, :5].clone(), torch.arange(len(rows), dtype=torch.int32), mask


def npu_nms_rotated(
    self: Tensor,
    scores: Tensor,
    iou_threshold: float,
    scores_threshold: float = 0,
    max_output_size: int = -1,
    mode: int = 0,
) -> tuple[Tensor, Tensor]:
    common, one, other = _turned_common(self[None], self[None], False)
    overlap = (common / (one + other - common))[0]
    kept: list[int] = []
    for n in np.argsort(-_numbers(scores), kind="stable").tolist():
        if scores[n] > scores_threshold and all(overlap[n, m] <= iou_threshold for m in kept):
            kept.append(n)
    kept = kept if max_output_size < 0 else kept[:max_output_size]
    return torch.tensor(kept, dtype=torch.int32), torch.tensor([len(kept)], dtype=torch.int32)


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
    batch, _, classes = scores.shape
    boxes, marks = torch.zeros(batch, max_total_size, 4).to(self), torch.zeros(batch, max_total_size).to(scores)
    labels, counts = marks.clone(), torch.zeros(batch, dtype=torch.int32)
    for b in range(batch):
        found = []
        for c in range(classes):
            of_class = self[b, :, min(c, self.shape[2] - 1)]
            kept = _survivors(_numbers(of_class), _numbers(scores[b, :, c]), iou_threshold, score_threshold)
            found += [(float(scores[b, n, c]), -c, n, of_class[n]) for n in kept[:max_size_per_class]]
        found = sorted(found, key=lambda each: each[:2], reverse=True)[:max_total_size]
        counts[b] = len(found)
        for place, (mark, label, _, box) in enumerate(found):
            boxes[b, place], marks[b, place], labels[b, place] = box, mark, -label
    return boxes, marks, labels, counts


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
        found[n] = _like(np.einsum("ijhw,chw->cij", weights, _numbers(self[image])), self)
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
        found[image] += np.einsum("ijhw,cij->chw", weights, _numbers(self[n]))
    return _like(found, self)


def npu_ps_roi_pooling(self: Tensor, rois: Tensor, spatial_scale: float, group_size: int, output_dim: int) -> Tensor:
    found = torch.zeros(rois.shape[0] * rois.shape[2], output_dim, group_size, group_size, dtype=self.dtype)
    for n, c, i, j, image, channel, window in _windows(rois, self.shape, spatial_scale, group_size, output_dim):
        part = _numbers(self)[image, channel][window]
        found[n, c, i, j] = float(part.mean()) if part.size else 0.0
    return found


def npu_ps_roi_pooling_backward(
    output_grad: Tensor, rois: Tensor, spatial_scale: float, group_size: int, output_dim: int, input_size: Any
) -> Tensor:
    shape = (len(rois), group_size**2 * output_dim, *list(input_size)[-2:])
    found, arrived = np.zeros(shape), _numbers(output_grad)
    for n, c, i, j, image, channel, window in _windows(rois, shape, spatial_scale, group_size, output_dim):
        part = found[image, channel][window]
        if part.size:
            part += arrived[n, c, i, j] / part.size
    return _like(found, output_grad)


def _windows(rois: Tensor, shape: Any, scale: float, group: int, output_dim: int) -> Any:
    for n, (image, x0, y0, x1, y1) in enumerate(_numbers(rois).transpose(0, 2, 1).reshape(-1, 5)):
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
    for image, x0, y0, x1, y1 in _numbers(rois):
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


def _survivors(boxes: Box, scores: Any, iou_threshold: float, score_threshold: float) -> list[int]:
    kept: list[int] = []
    for n in np.argsort(-scores, kind="stable").tolist():
        if scores[n] > score_threshold and all(_iou(boxes[n], boxes[m], 0) <= iou_threshold for m in kept):
            kept.append(n)
    return kept


def _turned_common(self: Tensor, query_boxes: Tensor, trans: bool) -> tuple[Any, Any, Any]:
    """Return the common areas by the corners and crossings of edges that lie in both boxes, and both areas."""
    first, second = _numbers(self), _numbers(query_boxes)
    if trans:
        first, second = (np.concatenate([(x[..., :2] + x[..., 2:4]) / 2, x[..., 2:4] - x[..., :2], x[..., 4:]], -1)
                         for x in (first, second))  # fmt: skip
    common = np.array([[[_polygon(a, b) for b in two] for a in one] for one, two in zip(first, second, strict=True)])
    return common, (first[..., 2] * first[..., 3])[:, :, None], (second[..., 2] * second[..., 3])[:, None]


def _polygon(a: Box, b: Box) -> float:
    corners = [_four_corners(a), _four_corners(b)]
    points = [p for p in corners[0] if _within(p, b)] + [p for p in corners[1] if _within(p, a)]
    for p, q in zip(corners[0], np.roll(corners[0], -1, 0), strict=True):
        for r, s in zip(corners[1], np.roll(corners[1], -1, 0), strict=True):
            matrix = np.array([q - p, r - s]).T
            if abs(np.linalg.det(matrix)) > 1e-12:
                t, u = np.linalg.solve(matrix, r - p)
                if 0 <= t <= 1 and 0 <= u <= 1:
                    points.append(p + t * (q - p))
    if len(points) < 3:
        return 0.0
    around = np.array(points) - np.mean(points, 0)
    around = around[np.argsort(np.arctan2(around[:, 1], around[:, 0]))]
    x, y = around.T
    return float(abs(np.dot(x, np.roll(y, -1)) - np.dot(y, np.roll(x, -1))) / 2)


def _four_corners(box: Box) -> Any:
    x, y, w, h, angle = box
    turn = np.array([[np.cos(np.radians(angle)), -np.sin(np.radians(angle))],
                     [np.sin(np.radians(angle)), np.cos(np.radians(angle))]])  # fmt: skip
    return np.array([[-w, -h], [w, -h], [w, h], [-w, h]]) / 2 @ turn.T + [x, y]


def _within(point: Any, box: Box) -> bool:
    x, y, w, h, angle = box
    cos, sin = np.cos(np.radians(angle)), np.sin(np.radians(angle))
    dx, dy = point - [x, y]
    return bool(abs(cos * dx + sin * dy) <= w / 2 + 1e-12 and abs(cos * dy - sin * dx) <= h / 2 + 1e-12)


def _table(measure: Any, self: Tensor, gtboxes: Tensor, trans: bool, is_cross: bool, mode: int) -> Tensor:
    first = [_xyxy(box, trans) for box in _numbers(self).T]
    second = [_xyxy(box, trans) for box in _numbers(gtboxes).T]
    if is_cross:
        return _like([[measure(a, b, mode) for a in first] for b in second], self)
    return _like([[measure(a, b, mode) for a, b in zip(first, second, strict=True)]], self)


def _slopes(
    measure: Any, grad: Tensor, bboxes: Tensor, gtboxes: Tensor, trans: bool, mode: int
) -> tuple[Tensor, Tensor]:
    """Return central differences of the measure of each pair; the weight of the shape in CIoU stays as it is."""
    both = [_numbers(bboxes).T.copy(), _numbers(gtboxes).T.copy()]
    arrived, found = _numbers(grad).ravel(), [np.zeros_like(both[0]), np.zeros_like(both[1])]
    for number in range(len(both[0])):
        pair = [both[0][number], both[1][number]]
        fixed = _fixed(measure, *(_xyxy(box, trans) for box in pair), mode)
        for which, place in np.ndindex(2, 4):
            ends = []
            for step in (1e-6, -1e-6):
                moved = [box.copy() for box in pair]
                moved[which][place] += step
                ends.append(fixed(*(_xyxy(box, trans) for box in moved)))
            found[which][number, place] = (ends[0] - ends[1]) / 2e-6 * arrived[number]
    return _like(found[0].T, bboxes), _like(found[1].T, gtboxes)


def _fixed(measure: Any, a: Box, b: Box, mode: int) -> Any:
    if measure is not _ciou:
        return lambda a, b: measure(a, b, mode)
    v = 4 / math.pi**2 * (_turn(b) - _turn(a)) ** 2
    weight = v / (1 - _iou(a, b, mode) + v)
    return lambda a, b: _diou(a, b, mode) - weight * 4 / math.pi**2 * (_turn(b) - _turn(a)) ** 2


def _moments(given: Any, named: Any) -> tuple[Any, Any]:
    numbers = [*given, *(named[f"{name}{i}"] for name in ("means", "stds") for i in range(4) if f"{name}{i}" in named)]
    return np.array(numbers[:4]), np.array(numbers[4:8])


def _xyxy(box: Box, trans: bool) -> Box:
    return (
        np.array([box[0] - box[2] / 2, box[1] - box[3] / 2, box[0] + box[2] / 2, box[1] + box[3] / 2]) if trans else box
    )


def _common(a: Box, b: Box) -> float:
    return float(max(0, min(a[2], b[2]) - max(a[0], b[0])) * max(0, min(a[3], b[3]) - max(a[1], b[1])))


def _size(a: Box) -> float:
    return float((a[2] - a[0]) * (a[3] - a[1]))


def _iou(a: Box, b: Box, mode: int) -> float:
    common = _common(a, b)
    return common / (_size(b) if mode else _size(a) + _size(b) - common)


def _hull(a: Box, b: Box) -> Box:
    return [min(a[0], b[0]), min(a[1], b[1]), max(a[2], b[2]), max(a[3], b[3])]


def _giou(a: Box, b: Box, mode: int) -> float:
    whole = _size(_hull(a, b))
    return _iou(a, b, mode) - (whole - (_size(a) + _size(b) - _common(a, b))) / whole


def _diou(a: Box, b: Box, mode: int) -> float:
    hull = _hull(a, b)
    apart = ((a[0] + a[2] - b[0] - b[2]) / 2) ** 2 + ((a[1] + a[3] - b[1] - b[3]) / 2) ** 2
    return _iou(a, b, mode) - apart / ((hull[2] - hull[0]) ** 2 + (hull[3] - hull[1]) ** 2)


def _turn(a: Box) -> float:
    return math.atan((a[2] - a[0]) / (a[3] - a[1]))


def _ciou(a: Box, b: Box, mode: int) -> float:
    v = 4 / math.pi**2 * (_turn(b) - _turn(a)) ** 2
    return _diou(a, b, mode) - v * v / (1 - _iou(a, b, mode) + v)


def _numbers(x: Tensor) -> Any:
    return x.detach().double().numpy()


def _like(found: Any, x: Tensor) -> Tensor:
    return torch.from_numpy(np.asarray(found, dtype=np.float64).copy()).to(x.dtype)
