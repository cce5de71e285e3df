"""Overlap of boxes, upright and rotated."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from pytest_msprobe.engine.replay.ops.operators import golden
from pytest_msprobe.engine.replay.ops.traits import OpInfo
from pytest_msprobe.extensions.npu_operators import boxes
from pytest_msprobe.extensions.npu_operators.arguments import refuse

Corners = tuple[Tensor, Tensor, Tensor, Tensor]


@golden("NPU.npu_iou", OpInfo(constraint=boxes.in_order((0, "bboxes"), (1, "gtboxes"))))
def npu_iou(bboxes: Tensor, gtboxes: Tensor, mode: int = 0) -> Tensor:
    """Return the overlap of every pair of boxes (N, 4) and (M, 4) in corners x1, y1, x2, y2, as (M, N).

    ``mode`` 0 divides the common area by that of the union, 1 by that of the box in ``gtboxes`` (assumed as in
    MindSpore's operator IOU, which runs the same kernel).
    """
    first = tuple(coordinate.unsqueeze(0) for coordinate in bboxes.unbind(-1))
    second = tuple(coordinate.unsqueeze(1) for coordinate in gtboxes.unbind(-1))
    return _overlap(_corners(first), _corners(second), mode)


@golden("NPU.npu_ptiou", OpInfo(constraint=boxes.in_order((0, "bboxes"), (1, "gtboxes"))))
def npu_ptiou(bboxes: Tensor, gtboxes: Tensor, mode: int = 0) -> Tensor:
    """Return :func:`npu_iou`; the two differ in how they are computed."""
    return npu_iou(bboxes, gtboxes, mode)


@golden("NPU.npu_giou")
def npu_giou(self: Tensor, gtboxes: Tensor, trans: bool = False, is_cross: bool = False, mode: int = 0) -> Tensor:
    """Return the overlap less the share of the enclosing box that neither box covers (Rezatofighi et al., 2019).

    Boxes are columns, (4, N), in corners or, with ``trans``, as centre x, y, width, height. One by one, the result is
    (N, 1); with ``is_cross``, for every pair of (4, N) and (4, M), it is (N, M).
    """
    first, second = _pairs(self, gtboxes, trans, is_cross)
    enclosing = _area(_enclosing(first, second))
    overlap = _overlap(first, second, mode)
    return (overlap - (enclosing - _union(first, second)) / enclosing).T


@golden("NPU.npu_diou")
def npu_diou(self: Tensor, gtboxes: Tensor, trans: bool = False, is_cross: bool = False, mode: int = 0) -> Tensor:
    """Return the overlap less the squared distance of the centres in relation to the enclosing box's diagonal.

    Arguments as :func:`npu_giou`'s (Zheng et al., 2020). One by one, the result is (1, N), for pairs (M, N).
    """
    first, second = _pairs(self, gtboxes, trans, is_cross)
    return _overlap(first, second, mode) - _distance(first, second)


@golden("NPU.npu_ciou")
def npu_ciou(
    self: Tensor,
    gtboxes: Tensor,
    trans: bool = False,
    is_cross: bool = True,
    mode: int = 0,
    atan_sub_flag: bool = False,
) -> Tensor:
    """Return :func:`npu_diou` less what the boxes differ in shape by (Zheng et al., 2020), shaped alike.

    That is v^2 / (1 - IoU + v) with v = 4 / pi^2 of the squared difference of atan(width / height); its weight has no
    gradient. ``atan_sub_flag`` is about a result that only the gradient reads.
    """
    return _npu_ciou(self, gtboxes, trans, is_cross, mode, atan_sub_flag)[0]


@golden("Aten._npu_ciou")
def _npu_ciou(
    self: Tensor,
    gtboxes: Tensor,
    trans: bool = False,
    is_cross: bool = True,
    mode: int = 0,
    atan_sub_flag: bool = False,
) -> tuple[Tensor, Tensor]:
    """Return (:func:`npu_ciou`, the difference of the angles of gtboxes and of self).

    Without ``atan_sub_flag`` nothing is promised of the second.
    """
    first, second = _pairs(self, gtboxes, trans, is_cross)
    overlap = _overlap(first, second, mode)
    difference = _angle(second) - _angle(first)
    shape = 4 / math.pi**2 * difference.square()
    below = (1 - overlap + shape).detach()
    # Equal boxes differ in nothing, whatever the weight.
    weight = torch.where(below > 0, shape.detach() / below, 0.0)
    return overlap - _distance(first, second) - weight * shape, difference.detach()


@golden("Aten.npu_giou_backward")
def npu_giou_backward(
    grad: Tensor, bboxes: Tensor, gtboxes: Tensor, trans: bool = False, is_cross: bool = False, mode: int = 0
) -> tuple[Tensor, Tensor]:
    """Return the gradients of :func:`npu_giou` for both boxes."""
    with torch.enable_grad():
        first, second = bboxes.detach().requires_grad_(), gtboxes.detach().requires_grad_()
        out = npu_giou(first, second, trans, is_cross, mode)
    return _gradients(out, grad, first, second)


@golden("Aten.npu_diou_backward")
def npu_diou_backward(
    grad: Tensor, bboxes: Tensor, gtboxes: Tensor, trans: bool = False, is_cross: bool = False, mode: int = 0
) -> tuple[Tensor, Tensor]:
    """Return the gradients of :func:`npu_diou` for both boxes."""
    with torch.enable_grad():
        first, second = bboxes.detach().requires_grad_(), gtboxes.detach().requires_grad_()
        out = npu_diou(first, second, trans, is_cross, mode)
    return _gradients(out, grad, first, second)


@golden("Aten.npu_ciou_backward")
def npu_ciou_backward(
    grad: Tensor,
    bboxes: Tensor,
    gtboxes: Tensor,
    atan_sub: Tensor | None,
    trans: bool = False,
    is_cross: bool = True,
    mode: int = 0,
) -> tuple[Tensor, Tensor]:
    """Return the gradients of :func:`npu_ciou` for both boxes; ``atan_sub`` follows from them and is not read."""
    with torch.enable_grad():
        first, second = bboxes.detach().requires_grad_(), gtboxes.detach().requires_grad_()
        out = npu_ciou(first, second, trans, is_cross, mode)
    return _gradients(out, grad, first, second)


def _gradients(out: Tensor, grad: Tensor, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    gradients = torch.autograd.grad(out, (first, second), grad.reshape(out.shape))
    return gradients[0], gradients[1]


def _pairs(self: Tensor, gtboxes: Tensor, trans: bool, is_cross: bool) -> tuple[Corners, Corners]:
    """Return the corners of both, as rows and columns of (M, N), or of (1, N) one by one."""
    if not is_cross and self.shape != gtboxes.shape:
        raise ValueError(f"boxes one by one need as many of each, not {tuple(self.shape)} and {tuple(gtboxes.shape)}")
    first = tuple(coordinate.unsqueeze(0) for coordinate in self.unbind(0))
    second = tuple(coordinate.unsqueeze(1 if is_cross else 0) for coordinate in gtboxes.unbind(0))
    return _corners(first, trans), _corners(second, trans)


def _corners(box: tuple[Tensor, ...], trans: bool = False) -> Corners:
    a, b, c, d = box
    return (a - c / 2, b - d / 2, a + c / 2, b + d / 2) if trans else (a, b, c, d)


def _area(box: Corners) -> Tensor:
    x1, y1, x2, y2 = box
    return (x2 - x1) * (y2 - y1)


def _intersection(first: Corners, second: Corners) -> Tensor:
    width = torch.minimum(first[2], second[2]) - torch.maximum(first[0], second[0])
    height = torch.minimum(first[3], second[3]) - torch.maximum(first[1], second[1])
    return width.clamp(min=0) * height.clamp(min=0)


def _union(first: Corners, second: Corners) -> Tensor:
    return _area(first) + _area(second) - _intersection(first, second)


def _overlap(first: Corners, second: Corners, mode: int) -> Tensor:
    refuse("the overlap of boxes", mode=None if mode in (0, 1) else mode)
    common = _intersection(first, second)
    return common / (_area(second) if mode == 1 else _union(first, second))


def _enclosing(first: Corners, second: Corners) -> Corners:
    return (
        torch.minimum(first[0], second[0]),
        torch.minimum(first[1], second[1]),
        torch.maximum(first[2], second[2]),
        torch.maximum(first[3], second[3]),
    )


def _distance(first: Corners, second: Corners) -> Tensor:
    x1, y1, x2, y2 = _enclosing(first, second)
    x, y = ((first[i] + first[i + 2] - second[i] - second[i + 2]) / 2 for i in (0, 1))
    return (x.square() + y.square()) / ((x2 - x1).square() + (y2 - y1).square())


def _angle(box: Corners) -> Tensor:
    x1, y1, x2, y2 = box
    return torch.atan((x2 - x1) / (y2 - y1))


Point = tuple[float, float]


@golden("NPU.npu_rotated_overlaps", OpInfo(constraint=boxes.turned((0, "self"), (1, "query_boxes"))))
def npu_rotated_overlaps(self: Tensor, query_boxes: Tensor, trans: bool = False) -> Tensor:
    """Return the common areas of every pair of turned boxes (B, N, 5) and (B, K, 5), as (B, N, K).

    A box is centre x, y, width, height and an angle in degrees or, with ``trans``, two corners before it is turned
    about its centre, and the angle.
    """
    return _of_pairs(self, query_boxes, trans)[0].to(self.dtype)


@golden("NPU.npu_rotated_iou", OpInfo(constraint=boxes.turned((0, "self"), (1, "query_boxes"))))
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
    ratios = torch.where(below > 0, common / below, 0.0).to(self.dtype)
    return ratios if is_cross else ratios.diagonal(dim1=-2, dim2=-1)


def _of_pairs(self: Tensor, query_boxes: Tensor, trans: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Return the common areas (B, N, K) and both areas, shaped to go with them, in float64."""
    first, second = (_as_lists(boxes, trans) for boxes in (self, query_boxes))
    common = [
        [[_common_area(_vertices(a), _vertices(b)) for b in second[batch]] for a in boxes]
        for batch, boxes in enumerate(first)
    ]
    shape = (self.shape[0], self.shape[1], query_boxes.shape[1])
    areas = (torch.tensor([[box[2] * box[3] for box in boxes] for boxes in operand], dtype=torch.float64)
             for operand in (first, second))  # fmt: skip
    one, other = (operand.reshape(shape[0], -1) for operand in areas)
    return torch.tensor(common, dtype=torch.float64).reshape(shape), one.unsqueeze(2), other.unsqueeze(1)


def _as_lists(boxes: Tensor, trans: bool) -> list[list[list[float]]]:
    values = boxes.double()
    if trans:
        x0, y0, x1, y1, angle = values.unbind(-1)
        values = torch.stack([(x0 + x1) / 2, (y0 + y1) / 2, x1 - x0, y1 - y0, angle], -1)
    lists: list[list[list[float]]] = values.tolist()
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
    remaining: list[Point] = []
    for here, there in zip(polygon, polygon[1:] + polygon[:1], strict=True):
        side, next_side = _side(start, end, here), _side(start, end, there)
        if side >= 0:
            remaining.append(here)
        if side * next_side < 0:
            share = side / (side - next_side)
            remaining.append((here[0] + share * (there[0] - here[0]), here[1] + share * (there[1] - here[1])))
    return remaining


def _side(start: Point, end: Point, point: Point) -> float:
    return (end[0] - start[0]) * (point[1] - start[1]) - (end[1] - start[1]) * (point[0] - start[0])


def _signed_area(polygon: list[Point]) -> float:
    return sum(a[0] * b[1] - b[0] * a[1] for a, b in zip(polygon, polygon[1:] + polygon[:1], strict=True)) / 2
