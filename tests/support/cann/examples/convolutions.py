"""Calls of convolutions and their gradients."""

from __future__ import annotations

from collections.abc import Callable

import torch

from tests.support.cann.draws import draw
from tests.support.cann.example_call import Call


def _plane(g: torch.Generator, *, groups: int = 1, dtype: torch.dtype = torch.float32) -> Call:
    x, weight, bias = draw(g, 2, 4, 5, 4, dtype=dtype), draw(g, 6, 4 // groups, 3, 2, dtype=dtype), draw(g, 6)
    return Call((x, weight, bias.to(dtype), [2, 1], [1, 0], [1, 2], groups), differentiate=groups > 1)


def _space(g: torch.Generator) -> Call:
    return Call((draw(g, 1, 2, 3, 4, 3), draw(g, 2, 2, 2, 2, 2), None, [1, 2, 1], [0, 1, 0], [1] * 3, 1))


def _transposed(g: torch.Generator, *, differentiate: bool = False) -> Call:
    x, weight = draw(g, 2, 4, 3, 3), draw(g, 4, 3, 2, 3)
    return Call((x, weight, draw(g, 6), [1, 0], [1, 0], [2, 1], [1, 1], 2), differentiate=differentiate)


def _backward(g: torch.Generator, mask: list[bool]) -> Call:
    x, weight = draw(g, 2, 4, 5, 4), draw(g, 6, 2, 3, 2)
    return Call((x, draw(g, 2, 6, 3, 2), weight, [2, 1], [1, 0], [1, 2], 2, mask))


def _space_backward(g: torch.Generator) -> Call:
    x, weight = draw(g, 1, 2, 3, 4, 3), draw(g, 2, 2, 2, 2, 2)
    return Call((x, draw(g, 1, 2, 2, 3, 2), weight, [1, 2, 1], [0, 1, 0], [1] * 3, 1, [True] * 3))


def _transposed_backward(g: torch.Generator) -> Call:
    x, weight = draw(g, 2, 4, 3, 3), draw(g, 4, 3, 2, 3)
    return Call((x, draw(g, 2, 6, 5, 5), weight, [1, 0], [1, 0], [2, 1], [1, 1], 2, [True] * 3))


def _transposed_space_backward(g: torch.Generator) -> Call:
    x, weight = draw(g, 1, 2, 2, 2, 2), draw(g, 2, 2, 2, 2, 2)
    return Call((x, draw(g, 1, 2, 4, 3, 3), weight, [0] * 3, [0] * 3, [2, 1, 1], [1] * 3, 1, [True, True, False]))


EXAMPLES: dict[str, Callable[[torch.Generator], Call]] = {
    "npu_conv2d": lambda g: _plane(g, dtype=torch.float16),
    "npu_conv3d": _space,
    "npu_convolution": lambda g: _plane(g, groups=2),
    "npu_conv_transpose2d": _transposed,
    "npu_convolution_transpose": lambda g: _transposed(g, differentiate=True),
    "npu_conv2d_backward": lambda g: _backward(g, [True, True, True]),
    "npu_convolution_backward": lambda g: _backward(g, [False, True, False]),
    "npu_conv3d_backward": _space_backward,
    "npu_conv_transpose2d_backward": _transposed_backward,
    "npu_convolution_transpose_backward": _transposed_backward,
    "npu_conv_transpose3d_backward": _transposed_space_backward,
}
