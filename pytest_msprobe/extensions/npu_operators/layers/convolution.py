"""Convolutions with every parameter spelled out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor


def npu_convolution(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """Return the convolution over as many dimensions as ``weight`` has after its first two, in ``out`` if given."""
    no_output_padding = [0] * len(stride)
    result = torch.convolution(
        input, weight, bias, list(stride), list(padding), list(dilation), False, no_output_padding, groups
    )
    return result if out is None else out.copy_(result)


npu_conv2d = npu_convolution
npu_conv3d = npu_convolution


def npu_convolution_transpose(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    padding: Sequence[int],
    output_padding: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Tensor:
    """Return the transposed convolution over as many dimensions as ``stride`` has; note the order of the arguments."""
    return torch.convolution(
        input, weight, bias, list(stride), list(padding), list(dilation), True, list(output_padding), groups
    )


npu_conv_transpose2d = npu_convolution_transpose
