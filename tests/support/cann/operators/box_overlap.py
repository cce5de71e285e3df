"""Overlaps of upright boxes, a pair at a time."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from torch import Tensor

from tests.support.cann.operators.box_numbers import like, numbers

Box = Any


def npu_iou(bboxes: Tensor, gtboxes: Tensor, mode: int = 0) -> Tensor:
    return like([[iou(a, b, mode) for a in numbers(bboxes)] for b in numbers(gtboxes)], bboxes)


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


def _table(measure: Any, self: Tensor, gtboxes: Tensor, trans: bool, is_cross: bool, mode: int) -> Tensor:
    first = [_xyxy(box, trans) for box in numbers(self).T]
    second = [_xyxy(box, trans) for box in numbers(gtboxes).T]
    if is_cross:
        return like([[measure(a, b, mode) for a in first] for b in second], self)
    return like([[measure(a, b, mode) for a, b in zip(first, second, strict=True)]], self)


def _slopes(
    measure: Any, grad: Tensor, bboxes: Tensor, gtboxes: Tensor, trans: bool, mode: int
) -> tuple[Tensor, Tensor]:
    """Return central differences of the measure of each pair; the weight of the shape in CIoU stays as it is."""
    both = [numbers(bboxes).T.copy(), numbers(gtboxes).T.copy()]
    arrived, found = numbers(grad).ravel(), [np.zeros_like(both[0]), np.zeros_like(both[1])]
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
    return like(found[0].T, bboxes), like(found[1].T, gtboxes)


def _fixed(measure: Any, a: Box, b: Box, mode: int) -> Any:
    if measure is not _ciou:
        return lambda a, b: measure(a, b, mode)
    v = 4 / math.pi**2 * (_turn(b) - _turn(a)) ** 2
    weight = v / (1 - iou(a, b, mode) + v)
    return lambda a, b: _diou(a, b, mode) - weight * 4 / math.pi**2 * (_turn(b) - _turn(a)) ** 2


def _xyxy(box: Box, trans: bool) -> Box:
    return (
        np.array([box[0] - box[2] / 2, box[1] - box[3] / 2, box[0] + box[2] / 2, box[1] + box[3] / 2]) if trans else box
    )


def _common(a: Box, b: Box) -> float:
    return float(max(0, min(a[2], b[2]) - max(a[0], b[0])) * max(0, min(a[3], b[3]) - max(a[1], b[1])))


def _size(a: Box) -> float:
    return float((a[2] - a[0]) * (a[3] - a[1]))


def iou(a: Box, b: Box, mode: int) -> float:
    common = _common(a, b)
    return common / (_size(b) if mode else _size(a) + _size(b) - common)


def _hull(a: Box, b: Box) -> Box:
    return [min(a[0], b[0]), min(a[1], b[1]), max(a[2], b[2]), max(a[3], b[3])]


def _giou(a: Box, b: Box, mode: int) -> float:
    whole = _size(_hull(a, b))
    return iou(a, b, mode) - (whole - (_size(a) + _size(b) - _common(a, b))) / whole


def _diou(a: Box, b: Box, mode: int) -> float:
    hull = _hull(a, b)
    apart = ((a[0] + a[2] - b[0] - b[2]) / 2) ** 2 + ((a[1] + a[3] - b[1] - b[3]) / 2) ** 2
    return iou(a, b, mode) - apart / ((hull[2] - hull[0]) ** 2 + (hull[3] - hull[1]) ** 2)


def _turn(a: Box) -> float:
    return math.atan((a[2] - a[0]) / (a[3] - a[1]))


def _ciou(a: Box, b: Box, mode: int) -> float:
    v = 4 / math.pi**2 * (_turn(b) - _turn(a)) ** 2
    return _diou(a, b, mode) - v * v / (1 - iou(a, b, mode) + v)
