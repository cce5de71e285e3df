"""Golden definitions: boxes around objects in images, and what is pooled from them; and how drawn boxes are ordered.

Importing its modules loads msgspec and torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from pytest_msprobe.engine.replay.inputs.constraints.drawn import Constraint, DrawnArguments


def in_order(*arguments: tuple[int, str], dim: int = -1, first: int = 0) -> Constraint:
    """Order the corners x0, y0, x1, y1 of these arguments along a dimension, from its element ``first`` on.

    Boxes that drawing made empty are one unit wide.
    """

    def constraint(drawn: DrawnArguments) -> None:
        for position, name in arguments:
            boxes = drawn.tensor(position, name)
            if boxes is not None and boxes.is_floating_point() and boxes.shape[dim] >= first + 4:
                _order(boxes, dim, first)

    return constraint


def regions(drawn: DrawnArguments) -> None:
    """Order the corners of regions (N, 5), and bring their images' numbers into the batch of the features."""
    features, rois = drawn.tensor(0, "self", "input"), drawn.tensor(1, "rois")
    if features is not None and rois is not None:
        _order_regions(rois, len(features))


def regions_of_gradient(drawn: DrawnArguments) -> None:
    """Do what `regions` does for a gradient, which knows the features by their shape."""
    rois, shape = drawn.tensor(1, "rois"), drawn.get(2, "xdiff_shape")
    if rois is not None and shape:
        _order_regions(rois, int(shape[0]))


def turned(*arguments: tuple[int, str]) -> Constraint:
    """Make the sizes of turned boxes positive: centre x, y, width, height and angle along the last dimension."""

    def constraint(drawn: DrawnArguments) -> None:
        for position, name in arguments:
            boxes = drawn.tensor(position, name)
            if boxes is not None and boxes.is_floating_point() and boxes.shape[-1] == 5:
                boxes[..., 2:4].abs_()

    return constraint


def _order_regions(rois: torch.Tensor, images: int) -> None:
    dim = 1 if rois.dim() == 3 else -1
    rois.select(dim, 0).abs_().floor_().remainder_(images)
    _order(rois, dim, 1)


def _order(boxes: torch.Tensor, dim: int, first: int) -> None:
    for axis in (first, first + 1):
        near, far = boxes.select(dim, axis), boxes.select(dim, axis + 2)
        low, high = torch.minimum(near, far), torch.maximum(near, far)
        near.copy_(low)
        far.copy_(torch.where(high > low, high, low + 1))
