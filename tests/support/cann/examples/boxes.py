"""Calls of the operators on boxes, in the documentation's shapes."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Generator, Tensor

from tests.support.cann.example_call import Call

_MOMENTS = (0.0, 0.1, 0.0, -0.1, 0.1, 0.1, 0.2, 0.2)


def _corners(generator: Generator, count: int, size: float = 20.0) -> Tensor:
    start = torch.rand(count, 2, generator=generator) * size
    return torch.cat([start, start + 1 + torch.rand(count, 2, generator=generator) * size], 1)


def _pair(generator: Generator) -> tuple[Tensor, Tensor]:
    return tuple(_corners(generator, 8).T.contiguous() for _ in range(2))  # type: ignore[return-value]


def _centres(generator: Generator) -> tuple[Tensor, Tensor]:
    found = []
    for _ in range(2):
        place, size = (torch.rand(2, 8, generator=generator) for _ in range(2))
        found.append(torch.cat([place * 3, size * 3 + 1]))
    return found[0], found[1]


def _turned(generator: Generator, *shape: int) -> Tensor:
    place, size, angle = (torch.rand(*shape, count, generator=generator) for count in (2, 2, 1))
    return torch.cat([place * 10, size * 10 + 2, angle * 180 - 90], -1)


def _upright_and_angle(generator: Generator) -> Tensor:
    corners = _corners(generator, 6).reshape(2, 3, 4)
    return torch.cat([corners, torch.rand(2, 3, 1, generator=generator) * 120 - 60], -1).transpose(1, 2).contiguous()


def _regions(generator: Generator) -> tuple[Tensor, Tensor]:
    features = torch.randn(2, 3, 8, 9, generator=generator)
    images = torch.tensor([[0.0], [1.0], [1.0]])
    return features, torch.cat([images, _corners(generator, 3, 16.0)], 1)


def _position_sensitive(generator: Generator) -> tuple[Tensor, Tensor]:
    features = torch.randn(2, 8, 7, 6, generator=generator)
    images = torch.tensor([0.0, 1.0]).reshape(2, 1, 1).expand(2, 1, 3)
    return features, torch.cat([images, _corners(generator, 6, 6.0).reshape(2, 3, 4).transpose(1, 2)], 1)


def _scores(generator: Generator, *shape: int) -> Tensor:
    return torch.rand(*shape, generator=generator)


def _sorted_rows(generator: Generator) -> Call:
    rows = torch.cat([_corners(generator, 12), torch.rand(12, 4, generator=generator)], 1)
    return Call((rows[rows[:, 4].argsort(descending=True)], 0.3))


def _assignment(generator: Generator) -> Call:
    overlaps, flags = torch.rand(3, 9, generator=generator), torch.rand(9, generator=generator) > 0.4
    most, at = overlaps.max(0)
    of_boxes, places = overlaps.max(1)
    whole = (flags.to(torch.uint8), most, at.int(), of_boxes, places.int())
    return Call((torch.zeros(9), overlaps, *whole, 128, 0.6, 0.1, True))


EXAMPLES: dict[str, Callable[[Generator], Call]] = {
    "npu_iou": lambda g: Call((_corners(g, 5), _corners(g, 4))),
    "npu_iou-of-foreground": lambda g: Call((_corners(g, 5).half(), _corners(g, 4).half()), {"mode": 1}),
    "npu_ptiou": lambda g: Call((_corners(g, 5), _corners(g, 4))),
    "npu_giou": lambda g: Call(_centres(g), {"trans": True}, differentiate=True),
    "npu_giou-cross": lambda g: Call(_pair(g), {"is_cross": True}),
    "npu_diou": lambda g: Call(_centres(g), {"trans": True}, differentiate=True),
    "npu_ciou": lambda g: Call(_centres(g), {"trans": True, "is_cross": False}, differentiate=True),
    "npu_ciou-cross": lambda g: Call(_pair(g)),
    "npu_bounding_box_encode": lambda g: Call((_corners(g, 6), _corners(g, 6), *_MOMENTS)),
    "npu_bounding_box_decode": lambda g: Call(
        (_corners(g, 6), torch.randn(6, 4, generator=g) * 0.3, *_MOMENTS, (30, 40), 0.1)
    ),
    "npu_rotated_box_encode": lambda g: Call((_upright_and_angle(g), _upright_and_angle(g), torch.ones(5))),
    "npu_rotated_box_decode": lambda g: Call(
        (_upright_and_angle(g), torch.randn(2, 5, 3, generator=g) * 0.3, torch.tensor([1.0, 1.0, 0.5, 0.5, 2.0]))
    ),
    "npu_yolo_boxes_encode": lambda g: Call((_corners(g, 6), _corners(g, 6), torch.full((6,), 8, dtype=torch.int32))),
    "npu_anchor_response_flags": lambda g: Call((_corners(g, 10), (12, 10), (4, 3), 2)),
    "npu_grid_assign_positive": _assignment,
    "npu_rotated_iou": lambda g: Call((_turned(g, 2, 4), _turned(g, 2, 3))),
    "npu_rotated_iou-one-by-one": lambda g: Call((_turned(g, 2, 4), _turned(g, 2, 4)), {"mode": 1, "is_cross": False}),
    "npu_rotated_overlaps": lambda g: Call((_turned(g, 1, 3), _turned(g, 1, 2))),
    "npu_nms_v4": lambda g: Call((_corners(g, 30), _scores(g, 30), 12, torch.tensor(0.4), torch.tensor(0.3))),
    "npu_nms_with_mask": _sorted_rows,
    "npu_nms_rotated": lambda g: Call((_turned(g, 20), _scores(g, 20), 0.2)),
    "npu_batch_nms": lambda g: Call(
        (_corners(g, 40).reshape(2, 10, 2, 4).half(), _scores(g, 2, 10, 2).half(), 0.3, 0.5, 3, 5)
    ),
    "npu_roi_align": lambda g: Call((*_regions(g), 0.5, 3, 4, 2, 0)),
    "npu_roi_align-adaptive": lambda g: Call((*_regions(g), 0.5, 2, 2, 0, 1)),
    "npu_roi_alignbk": lambda g: Call(
        (torch.randn(3, 3, 3, 4, generator=g), _regions(g)[1], (2, 3, 8, 9), 4, 3, 0.5, 2, 0)
    ),
    "npu_ps_roi_pooling": lambda g: Call((*_position_sensitive(g), 0.5, 2, 2)),
}
