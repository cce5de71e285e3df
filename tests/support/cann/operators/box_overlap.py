"""Overlaps of upright boxes, a pair at a time."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from torch import Tensor

from tests.support.cann.operators.box_numbers import like, numbers
from tests.support.cann.operators.by_schema import Arguments, by_schema

Box = Any


@by_schema
def npu_iou(args: Arguments) -> Tensor:
    return like([[iou(a, b, args.mode) for a in numbers(args.bboxes)] for b in numbers(args.gtboxes)], args.bboxes)


@by_schema
def npu_ptiou(args: Arguments) -> Tensor:
    return npu_iou(args.bboxes, args.gtboxes, args.mode)


@by_schema
def npu_giou(args: Arguments) -> Tensor:
    return _table(_giou, args.self, args.gtboxes, args.trans, args.is_cross, args.mode).T.contiguous()


@by_schema
def npu_diou(args: Arguments) -> Tensor:
    return _table(_diou, args.self, args.gtboxes, args.trans, args.is_cross, args.mode)


@by_schema
def npu_ciou(args: Arguments) -> Tensor:
    return _table(_ciou, args.self, args.gtboxes, args.trans, args.is_cross, args.mode)


@by_schema
def _npu_ciou(args: Arguments) -> tuple[Tensor, Tensor]:
    angles = _table(lambda a, b, _: _turn(b) - _turn(a), args.self, args.gtboxes, args.trans, args.is_cross, args.mode)
    return npu_ciou(args.self, args.gtboxes, args.trans, args.is_cross, args.mode), angles


@by_schema
def npu_giou_backward(args: Arguments) -> tuple[Tensor, Tensor]:
    return _slopes(_giou, args.grad, args.bboxes, args.gtboxes, args.trans, args.mode)


@by_schema
def npu_diou_backward(args: Arguments) -> tuple[Tensor, Tensor]:
    return _slopes(_diou, args.grad, args.bboxes, args.gtboxes, args.trans, args.mode)


@by_schema
def npu_ciou_backward(args: Arguments) -> tuple[Tensor, Tensor]:
    return _slopes(_ciou, args.grad, args.bboxes, args.gtboxes, args.trans, args.mode)


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
