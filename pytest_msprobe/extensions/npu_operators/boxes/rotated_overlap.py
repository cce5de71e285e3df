"""Overlap of turned boxes."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from pytest_msprobe.extensions.npu_operators.reference_arguments import refuse

Point = tuple[float, float]


def npu_rotated_overlaps(self: Tensor, query_boxes: Tensor, trans: bool = False) -> Tensor:
    """Return the common areas of every pair of turned boxes (B, N, 5) and (B, K, 5), as (B, N, K).

    A box is centre x, y, width, height and an angle in degrees or, with ``trans``, two corners before it is turned
    about its centre, and the angle.
    """
    return _of_pairs(self, query_boxes, trans)[0].to(self.dtype)


def npu_rotated_iou(
    self: Tensor,
    query_boxes: Tensor,
    trans: bool = False,
    mode: int = 0,
    is_cross: bool = True,
    v_threshold: float = 0.0,
    e_threshold: float = 0.0,
) -> Tensor:
    """Return the common areas of :func:`npu_rotated_overlaps` in relation to the unions, or, mode 1, to self's areas.

    Without ``is_cross`` boxes are taken one by one and the result is (B, N). The thresholds widen the kernel's tests
    of vertices and edges; here they are exact, and thresholds other than 0 are refused by NotImplementedError.
    """
    refuse(
        "npu_rotated_iou",
        v_threshold=v_threshold or None,
        e_threshold=e_threshold or None,
        mode=None if mode in (0, 1) else mode,
    )
    common, first, second = _of_pairs(self, query_boxes, trans)
    below = first.expand_as(common) if mode == 1 else first + second - common
    found = torch.where(below > 0, common / below, 0.0).to(self.dtype)
    return found if is_cross else found.diagonal(dim1=-2, dim2=-1)


def _of_pairs(self: Tensor, query_boxes: Tensor, trans: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Return the common areas (B, N, K) and both areas, shaped to go with them, in float64."""
    first, second = (_as_lists(boxes, trans) for boxes in (self, query_boxes))
    common = [
        [[_common_area(_vertices(a), _vertices(b)) for b in second[batch]] for a in boxes]
        for batch, boxes in enumerate(first)
    ]
    shape = (self.shape[0], self.shape[1], query_boxes.shape[1])
    areas = (torch.tensor([[box[2] * box[3] for box in boxes] for boxes in each], dtype=torch.float64)
             for each in (first, second))  # fmt: skip
    one, other = (each.reshape(shape[0], -1) for each in areas)
    return torch.tensor(common, dtype=torch.float64).reshape(shape), one.unsqueeze(2), other.unsqueeze(1)


def _as_lists(boxes: Tensor, trans: bool) -> list[list[list[float]]]:
    found = boxes.double()
    if trans:
        x0, y0, x1, y1, angle = found.unbind(-1)
        found = torch.stack([(x0 + x1) / 2, (y0 + y1) / 2, x1 - x0, y1 - y0, angle], -1)
    lists: list[list[list[float]]] = found.tolist()
    return lists


def _vertices(box: list[float]) -> list[Point]:
    x, y, width, height, degrees = box
    cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    halves = ((-width / 2, -height / 2), (width / 2, -height / 2), (width / 2, height / 2), (-width / 2, height / 2))
    return [(x + cos * a - sin * b, y + sin * a + cos * b) for a, b in halves]


def _common_area(subject: list[Point], clip: list[Point]) -> float:
    """Return the area of a convex polygon cut by the edges of another one (Sutherland and Hodgman, 1974)."""
    cut = subject
    for start, end in zip(clip, clip[1:] + clip[:1], strict=True):
        cut = _cut(cut, start, end)
    return abs(_signed_area(cut))


def _cut(polygon: list[Point], start: Point, end: Point) -> list[Point]:
    kept: list[Point] = []
    for here, there in zip(polygon, polygon[1:] + polygon[:1], strict=True):
        side, next_side = _side(start, end, here), _side(start, end, there)
        if side >= 0:
            kept.append(here)
        if side * next_side < 0:
            share = side / (side - next_side)
            kept.append((here[0] + share * (there[0] - here[0]), here[1] + share * (there[1] - here[1])))
    return kept


def _side(start: Point, end: Point, point: Point) -> float:
    return (end[0] - start[0]) * (point[1] - start[1]) - (end[1] - start[1]) * (point[0] - start[0])


def _signed_area(polygon: list[Point]) -> float:
    return sum(a[0] * b[1] - b[0] * a[1] for a, b in zip(polygon, polygon[1:] + polygon[:1], strict=True)) / 2
