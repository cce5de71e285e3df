"""Gradients of convolutions for input, weight and bias."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    Gradients = tuple[Tensor | None, Tensor | None, Tensor | None]


def npu_convolution_backward(
    input: Tensor,
    grad_output: Tensor,
    weight: Tensor,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    output_mask: Sequence[bool],
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Return the gradients of ``npu_convolution``, None where ``output_mask`` is false."""
    wanted = [bool(each) for each in output_mask]
    found: Gradients = torch.ops.aten.convolution_backward(
        grad_output, input, weight, [weight.shape[0]], list(stride), list(padding), list(dilation), False,
        [0] * len(stride), groups, wanted
    )  # fmt: skip
    return found


npu_conv2d_backward = npu_convolution_backward


def npu_conv3d_backward(
    input: Tensor,
    grad: Tensor,
    weight: Tensor,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    output_mask: Sequence[bool],
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Return the gradients of ``npu_conv3d``, None where ``output_mask`` is false."""
    return npu_convolution_backward(input, grad, weight, stride, padding, dilation, groups, output_mask)


def npu_conv_transpose2d_backward(
    input: Tensor, grad_output: Tensor, weight: Tensor, padding: Sequence[int], output_padding: Sequence[int],
    stride: Sequence[int], dilation: Sequence[int], groups: int, output_mask: Sequence[bool],
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:  # fmt: skip
    """Return the gradients of ``npu_conv_transpose2d``, None where ``output_mask`` is false."""
    wanted = [bool(each) for each in output_mask]
    found: Gradients = torch.ops.aten.convolution_backward(
        grad_output, input, weight, [weight.shape[1] * groups], list(stride), list(padding), list(dilation), True,
        list(output_padding), groups, wanted
    )  # fmt: skip
    return found


npu_conv_transpose3d_backward = npu_conv_transpose2d_backward


def npu_convolution_transpose_backward(
    input: Tensor, grad: Tensor, weight: Tensor, padding: Sequence[int], output_padding: Sequence[int],
    stride: Sequence[int], dilation: Sequence[int], groups: int, grad_input_mask: Sequence[bool],
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:  # fmt: skip
    """Return the gradients of ``npu_convolution_transpose``, None where ``grad_input_mask`` is false."""
    return npu_conv_transpose2d_backward(
        input, grad, weight, padding, output_padding, stride, dilation, groups, grad_input_mask
    )
