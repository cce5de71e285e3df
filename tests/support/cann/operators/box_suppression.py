"""Boxes that survive better scored ones, one after the other."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tests.support.cann.operators.box_numbers import numbers
from tests.support.cann.operators.box_overlap import iou
from tests.support.cann.operators.by_schema import Arguments, by_schema
from tests.support.cann.operators.turned_boxes import turned_common

Box = Any


@by_schema
def npu_nms_v4(args: Arguments) -> tuple[Tensor, Tensor]:
    kept = _survivors(numbers(args.self), numbers(args.scores), float(args.iou_threshold), float(args.scores_threshold))
    kept = kept[: int(args.max_output_size)]
    filled = kept + [0] * (int(args.max_output_size) - len(kept))
    return torch.tensor(filled, dtype=torch.int32), torch.tensor(len(kept), dtype=torch.int32)


@by_schema
def npu_nms_with_mask(args: Arguments) -> tuple[Tensor, Tensor, Tensor]:
    rows = numbers(args.input)
    kept = _survivors(rows[:, :4], -np.arange(len(rows)), float(args.iou_threshold), -math.inf)
    mask = torch.tensor([n in kept for n in range(len(rows))]).to(torch.uint8)
    return args.input[:, :5].clone(), torch.arange(len(rows), dtype=torch.int32), mask


@by_schema
def npu_nms_rotated(args: Arguments) -> tuple[Tensor, Tensor]:
    common, one, other = turned_common(args.self[None], args.self[None], False)
    overlap = (common / (one + other - common))[0]
    kept: list[int] = []
    for n in np.argsort(-numbers(args.scores), kind="stable").tolist():
        if args.scores[n] > args.scores_threshold and all(overlap[n, m] <= args.iou_threshold for m in kept):
            kept.append(n)
    kept = kept if args.max_output_size < 0 else kept[: args.max_output_size]
    return torch.tensor(kept, dtype=torch.int32), torch.tensor([len(kept)], dtype=torch.int32)


@by_schema
def npu_batch_nms(args: Arguments) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    batch, _, classes = args.scores.shape
    boxes, marks = (
        torch.zeros(batch, args.max_total_size, 4).to(args.self),
        torch.zeros(batch, args.max_total_size).to(args.scores),
    )
    labels, counts = marks.clone(), torch.zeros(batch, dtype=torch.int32)
    for b in range(batch):
        found = []
        for c in range(classes):
            of_class = args.self[b, :, min(c, args.self.shape[2] - 1)]
            kept = _survivors(
                numbers(of_class), numbers(args.scores[b, :, c]), args.iou_threshold, args.score_threshold
            )
            found += [(float(args.scores[b, n, c]), -c, n, of_class[n]) for n in kept[: args.max_size_per_class]]
        found = sorted(found, key=lambda each: each[:2], reverse=True)[: args.max_total_size]
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
