"""Boxes that survive better scored ones, one after the other."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tests.support.cann.operators.box_numbers import numbers
from tests.support.cann.operators.box_overlap import iou
from tests.support.cann.operators.turned_boxes import turned_common

Box = Any


def npu_nms_v4(
    self: Tensor,
    scores: Tensor,
    max_output_size: float,
    iou_threshold: Tensor,
    scores_threshold: Tensor,
    pad_to_max_output_size: bool = False,
) -> tuple[Tensor, Tensor]:
    kept = _survivors(numbers(self), numbers(scores), float(iou_threshold), float(scores_threshold))
    kept = kept[: int(max_output_size)]
    filled = kept + [0] * (int(max_output_size) - len(kept))
    return torch.tensor(filled, dtype=torch.int32), torch.tensor(len(kept), dtype=torch.int32)


def npu_nms_with_mask(input: Tensor, iou_threshold: float) -> tuple[Tensor, Tensor, Tensor]:  # noqa: A002
    rows = numbers(input)
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
    common, one, other = turned_common(self[None], self[None], False)
    overlap = (common / (one + other - common))[0]
    kept: list[int] = []
    for n in np.argsort(-numbers(scores), kind="stable").tolist():
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
            kept = _survivors(numbers(of_class), numbers(scores[b, :, c]), iou_threshold, score_threshold)
            found += [(float(scores[b, n, c]), -c, n, of_class[n]) for n in kept[:max_size_per_class]]
        found = sorted(found, key=lambda each: each[:2], reverse=True)[:max_total_size]
        counts[b] = len(found)
        for place, (mark, label, _, box) in enumerate(found):
            boxes[b, place], marks[b, place], labels[b, place] = box, mark, -label
    return boxes, marks, labels, counts


def _survivors(boxes: Box, scores: Any, iou_threshold: float, score_threshold: float) -> list[int]:
    kept: list[int] = []
    for n in np.argsort(-scores, kind="stable").tolist():
        if scores[n] > score_threshold and all(iou(boxes[n], boxes[m], 0) <= iou_threshold for m in kept):
            kept.append(n)
    return kept
