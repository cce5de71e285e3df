"""Overlaps of turned boxes, by corners and crossings of edges."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor

from tests.support.cann.operators.box_numbers import like, numbers
from tests.support.cann.operators.by_schema import Arguments, by_schema

Box = Any


@by_schema
def npu_rotated_overlaps(args: Arguments) -> Tensor:
    return like(turned_common(args.self, args.query_boxes, args.trans)[0], args.self)


@by_schema
def npu_rotated_iou(args: Arguments) -> Tensor:
    common, one, other = turned_common(args.self, args.query_boxes, args.trans)
    found = common / (np.broadcast_to(one, common.shape) if args.mode else one + other - common)
    return like(found if args.is_cross else np.stack([np.diag(each) for each in found]), args.self)


def turned_common(self: Tensor, query_boxes: Tensor, trans: bool) -> tuple[Any, Any, Any]:
    """Return the common areas by the corners and crossings of edges that lie in both boxes, and both areas."""
    first, second = numbers(self), numbers(query_boxes)
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
