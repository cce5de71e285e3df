"""torchvision's own operators, where the installed torchvision was built for another torch and brings none.

PyPI has torchvision for CUDA only; next to a torch for the CPU it cannot even be imported, for its import describes the
operators. Those that its detectors call are defined here.
"""

from __future__ import annotations

import inspect
import sys

import torch
from torch import Tensor


def nms(boxes: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
    """Return the boxes that overlap none of a higher score by more than the threshold, the highest score first."""
    order = scores.argsort(descending=True, stable=True)
    overlap = torchvision.ops.box_iou(boxes[order], boxes[order]) > iou_threshold
    kept = torch.ones(len(order), dtype=torch.bool)
    for index in range(len(order)):
        if kept[index]:
            kept[index + 1 :] &= ~overlap[index, index + 1 :]
    return order[kept]


try:
    import torchvision
except RuntimeError:
    _library = torch.library.Library("torchvision", "FRAGMENT")
    for _name in ("nms", "qnms"):
        _library.define(f"{_name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _library.define(
        "roi_align(Tensor input, Tensor rois, float spatial_scale, int pooled_height, int pooled_width, "
        "int sampling_ratio, bool aligned) -> Tensor"
    )
    import torchvision

    _roi_align = sys.modules["torchvision.ops.roi_align"]
    _library.impl("nms", nms, "CPU")
    # torchvision's definition in Python, without the compiler that it goes through.
    _library.impl("roi_align", inspect.unwrap(_roi_align._roi_align), "CompositeImplicitAutograd")
    torchvision.extension._has_ops = _roi_align._has_ops = lambda: True
