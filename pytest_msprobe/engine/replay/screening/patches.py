"""Convolutions whose windows do not overlap: each output is a product of one patch of the input with the weight."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch

from pytest_msprobe.engine.replay.convolution_calls import each_of
from pytest_msprobe.engine.replay.screening.layout import Contraction, Layout


def patches(values: torch.Size, weight: torch.Size, options: Mapping[str, Any]) -> Contraction | None:
    """Return what product a convolution of (N, C, ...) with a weight (O, C, ...) is.

    Its windows are as large as its steps and fill the input, as those of a pointwise convolution or of an embedding of
    patches: then it multiplies (N * windows, C * kernel) by (C * kernel, O). None for any other: where windows overlap,
    are padded, dilated or grouped, or leave elements at the end out.
    """
    if len(values) != len(weight) or values[1] != weight[1]:
        return None
    sides, kernel = values[2:], tuple(weight[2:])
    count = len(kernel)
    plain = (
        each_of(options.get("stride", 1), count) == kernel
        and options.get("padding", 0) in (0, "valid", (0,) * count, [0] * count)
        and each_of(options.get("dilation", 1), count) == (1,) * count
        and options.get("groups", 1) == 1
    )
    if not plain or any(side % size for side, size in zip(sides, kernel, strict=True)):
        return None
    windows = tuple(side // size for side, size in zip(sides, kernel, strict=True))
    rows, inner, columns = values[0] * math.prod(windows), weight[1] * math.prod(kernel), weight[0]
    spatial = tuple(range(2, 2 + count))
    apart = tuple(part for pair in zip(windows, kernel, strict=True) for part in pair)
    of_windows, of_kernel = tuple(range(2, 2 + 2 * count, 2)), tuple(range(3, 3 + 2 * count, 2))
    return Contraction(
        Layout((0, *of_windows, 1, *of_kernel), rows, inner, (values[0], values[1], *apart)),
        Layout((1, *spatial, 0), inner, columns),
        Layout((0, *spatial, 1), rows, columns),
        (values[0], columns, *windows),
    )
