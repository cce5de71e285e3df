"""Operators on boxes: numbers of the documentation's examples, and independent definitions."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from pytest_msprobe.extensions.npu_operators.boxes.box_coding import (
    npu_bounding_box_decode,
    npu_bounding_box_encode,
    npu_rotated_box_decode,
    npu_rotated_box_encode,
)
from pytest_msprobe.extensions.npu_operators.boxes.box_overlap import (
    npu_ciou,
    npu_diou,
    npu_giou,
    npu_iou,
    npu_rotated_iou,
)
from pytest_msprobe.extensions.npu_operators.boxes.box_selection import npu_roi_align
from tests.support.cann.agreement import assert_agrees
from tests.support.cann.example_call import Call
from tests.support.cann.examples.boxes import EXAMPLES
from tests.support.cann.operators import box_overlap as independent


def close(actual: Tensor, expected: object, atol: float) -> None:
    torch.testing.assert_close(actual, torch.tensor(expected, dtype=actual.dtype), rtol=0, atol=atol)


@pytest.mark.parametrize("operator", ["giou", "diou", "ciou"])
def test_gradients_are_central_differences(operator: str) -> None:
    first, second = (each.double() for each in EXAMPLES[f"npu_{operator}"](torch.Generator().manual_seed(1)).args)
    arrived = torch.randn(1, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    more = (None,) if operator == "ciou" else ()
    call = Call((arrived, first, second, *more), {"trans": True, "is_cross": False})
    assert_agrees(getattr(independent, f"npu_{operator}_backward"), call, tolerance=1e-6)


def test_the_overlaps_of_the_documentation_are_those_of_its_example_within_its_error() -> None:
    boxes = torch.tensor([[0.0, 0, 10, 10], [10, 10, 20, 20], [32, 32, 38, 42]])
    true = torch.tensor([[0.0, 0, 10, 20], [0, 10, 10, 10], [10, 10, 20, 20]])
    close(npu_iou(boxes, true), [[0.4985, 0, 0], [0, 0, 0], [0, 0.9961, 0]], 4e-3)


def test_differences_from_anchors_are_those_of_the_documentation() -> None:
    anchors = torch.tensor([[1.0, 2, 3, 4], [3, 4, 5, 6]])
    true = torch.tensor([[5.0, 6, 7, 8], [7, 8, 9, 6]])
    found = npu_bounding_box_encode(anchors, true, 0, 0, 0, 0, 0.1, 0.1, 0.2, 0.2)
    close(found, [[13.3281, 13.3281, 0, 0], [13.3281, 6.6641, 0, -5.4922]], 6e-3)
    decoded = npu_bounding_box_decode(
        anchors, torch.tensor([[5.0, 6, 7, 8], [7, 8, 9, 6]]), 0, 0, 0, 0, 1, 1, 1, 1, (10, 10), 0.1
    )
    close(decoded, [[2.5, 6.5, 9, 9], [9, 9, 9, 9]], 1e-5)


def test_turned_boxes_are_coded_as_in_the_documentation() -> None:
    anchor = torch.tensor([30.69, 32.6, 45.94, 59.88, -44.53]).reshape(1, 5, 1)
    true = torch.tensor([30.44, 18.72, 33.22, 45.56, 8.5]).reshape(1, 5, 1)
    found = npu_rotated_box_encode(anchor, true, torch.ones(5)).flatten()
    close(found, [-0.4253, -0.5166, -1.7021, -0.0162, 1.1328], 1e-3)
    anchor = torch.tensor([4.137, 33.72, 29.4, 54.06, 41.28]).reshape(1, 5, 1)
    deltas = torch.tensor([0.0244, -1.992, 0.2109, 0.315, -37.25]).reshape(1, 5, 1)
    close(
        npu_rotated_box_decode(anchor, deltas, torch.ones(5)).flatten(), [1.7861, -10.5781, 33, 17.2969, -88.4375], 3e-2
    )


def test_a_region_is_pooled_as_in_the_documentation() -> None:
    features = torch.arange(1.0, 37.0).reshape(1, 1, 6, 6)
    found = npu_roi_align(features, torch.tensor([[0, -2.0, -2.0, 22.0, 22.0]]), 0.25, 3, 3, 2, 0)
    close(found, [[[[4.5, 6.5, 8.5], [16.5, 18.5, 20.5], [28.5, 30.5, 32.5]]]], 1e-5)


def test_a_box_has_every_overlap_of_one_with_itself() -> None:
    box = torch.tensor([[1.0], [2.0], [3.0], [5.0]])
    for found in (npu_giou(box, box, True), npu_diou(box, box, True), npu_ciou(box, box, True, False)):
        close(found, [[1.0]], 1e-6)


def test_a_square_turned_by_45_degrees_covers_an_octagon() -> None:
    square, turned = torch.tensor([[[0.0, 0, 2, 2, 0]]]), torch.tensor([[[0.0, 0, 2, 2, 45]]])
    octagon = 8 * (2**0.5 - 1)
    close(npu_rotated_iou(square, turned), [[[octagon / (8 - octagon)]]], 1e-6)
