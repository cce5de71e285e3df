"""Boxes that survive better scored ones which overlap them (non-maximum suppression)."""

from __future__ import annotations

import torch
from torch import Tensor

from pytest_msprobe.extensions.npu_operators.boxes.box_overlap import npu_iou
from pytest_msprobe.extensions.npu_operators.boxes.rotated_overlap import npu_rotated_iou
from pytest_msprobe.extensions.npu_operators.reference_arguments import refuse


def npu_nms_v4(
    self: Tensor,
    scores: Tensor,
    max_output_size: float,
    iou_threshold: Tensor,
    scores_threshold: Tensor,
    pad_to_max_output_size: bool = False,
) -> tuple[Tensor, Tensor]:
    """Return (numbers of the boxes that are kept, best score first, int32; how many there are, int32).

    self is (n, 4) in corners. A box goes whose score is not above ``scores_threshold``, or that overlaps a kept one
    by more than ``iou_threshold``; at most ``max_output_size`` stay. The numbers are filled up with zeros to that
    length: the operator returns that many with and without ``pad_to_max_output_size``.
    """
    overlap = npu_iou(self, self).T
    kept = _kept(overlap, scores, float(iou_threshold), float(scores_threshold), int(max_output_size))
    numbers = torch.zeros(int(max_output_size), dtype=torch.int32)
    numbers[: len(kept)] = torch.tensor(kept, dtype=torch.int32)
    return numbers, torch.tensor(len(kept), dtype=torch.int32)


def npu_nms_with_mask(input: Tensor, iou_threshold: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return (boxes and scores (N, 5), their numbers, int32, 1 for those that are kept and 0 for others, uint8).

    ``input`` (N, 8) holds corners, a score and three numbers that count for nothing, sorted by the score. A box goes
    that overlaps a kept one by more than ``iou_threshold``; no row moves.
    """
    boxes = input[:, :5]
    overlap = npu_iou(boxes[:, :4], boxes[:, :4]).T
    order = -torch.arange(len(boxes), dtype=torch.float64)
    kept = _kept(overlap, order, float(iou_threshold), -torch.inf, len(boxes))
    mask = torch.zeros(len(boxes), dtype=torch.uint8)
    mask[kept] = 1
    return boxes.clone(), torch.arange(len(boxes), dtype=torch.int32), mask


def npu_nms_rotated(
    self: Tensor,
    scores: Tensor,
    iou_threshold: float,
    scores_threshold: float = 0,
    max_output_size: int = -1,
    mode: int = 0,
) -> tuple[Tensor, Tensor]:
    """Return :func:`npu_nms_v4` of turned boxes (n, 5), centre, size and angle in degrees, without zeros behind.

    How many there are is of shape (1). Raises NotImplementedError for ``mode`` 1, which is documented as not
    supported.
    """
    refuse("npu_nms_rotated", mode=mode or None)
    overlap = npu_rotated_iou(self.unsqueeze(0), self.unsqueeze(0))[0]
    most = len(self) if max_output_size < 0 else max_output_size
    kept = _kept(overlap, scores, iou_threshold, scores_threshold, most)
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
    """Return the best boxes (B, max_total_size, 4), their scores and classes (B, max_total_size), their count (B).

    self is (B, anchors, 1 or classes, 4), ``scores`` (B, anchors, classes). Each class is suppressed by itself, as by
    :func:`npu_nms_v4`, then the best of all classes are kept; what is left of the results is 0. Raises
    NotImplementedError for the last two arguments, whose meaning is open.
    """
    refuse(
        "npu_batch_nms",
        change_coordinate_frame=change_coordinate_frame or None,
        transpose_box=transpose_box or None,
    )
    batch, _, classes = scores.shape
    boxes_out, scores_out = self.new_zeros(batch, max_total_size, 4), scores.new_zeros(batch, max_total_size)
    classes_out, counts = torch.zeros_like(scores_out), torch.zeros(batch, dtype=torch.int32)
    for b in range(batch):
        found = []
        for label in range(classes):
            boxes, marks = self[b, :, label if self.shape[2] > 1 else 0], scores[b, :, label]
            kept = _kept(npu_iou(boxes, boxes).T, marks, iou_threshold, score_threshold, max_size_per_class)
            found += [(float(marks[i]), label, boxes[i]) for i in kept]
        found.sort(key=lambda each: -each[0])
        counts[b] = min(len(found), max_total_size)
        for place, (mark, label, box) in enumerate(found[:max_total_size]):
            boxes_out[b, place], scores_out[b, place], classes_out[b, place] = box, mark, label
    return boxes_out, scores_out, classes_out, counts


def _kept(overlap: Tensor, scores: Tensor, iou_threshold: float, score_threshold: float, most: int) -> list[int]:
    kept: list[int] = []
    for number in scores.argsort(descending=True, stable=True).tolist():
        if len(kept) == most or not scores[number] > score_threshold:
            break
        if not any(overlap[number, other] > iou_threshold for other in kept):
            kept.append(number)
    return kept
