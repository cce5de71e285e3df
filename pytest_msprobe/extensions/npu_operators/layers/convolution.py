"""Convolutions, their gradients, and deformable ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from pytest_msprobe.engine.replay.ops.operators import golden
from pytest_msprobe.extensions.npu_operators.arguments import refuse

if TYPE_CHECKING:
    from collections.abc import Sequence

    Gradients = tuple[Tensor | None, Tensor | None, Tensor | None]


@golden("NPU.npu_convolution")
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


npu_conv2d = golden("NPU.npu_conv2d")(npu_convolution)
npu_conv3d = golden("NPU.npu_conv3d")(npu_convolution)


@golden("NPU.npu_convolution_transpose")
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


npu_conv_transpose2d = golden("NPU.npu_conv_transpose2d")(npu_convolution_transpose)


@golden("Aten.npu_convolution_backward")
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
    mask = [bool(flag) for flag in output_mask]
    gradients: Gradients = torch.ops.aten.convolution_backward(
        grad_output, input, weight, [weight.shape[0]], list(stride), list(padding), list(dilation), False,
        [0] * len(stride), groups, mask
    )  # fmt: skip
    return gradients


npu_conv2d_backward = golden("Aten.npu_conv2d_backward")(npu_convolution_backward)


@golden("Aten.npu_conv3d_backward")
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


@golden("Aten.npu_conv_transpose2d_backward")
def npu_conv_transpose2d_backward(
    input: Tensor, grad_output: Tensor, weight: Tensor, padding: Sequence[int], output_padding: Sequence[int],
    stride: Sequence[int], dilation: Sequence[int], groups: int, output_mask: Sequence[bool],
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:  # fmt: skip
    """Return the gradients of ``npu_conv_transpose2d``, None where ``output_mask`` is false."""
    mask = [bool(flag) for flag in output_mask]
    gradients: Gradients = torch.ops.aten.convolution_backward(
        grad_output, input, weight, [weight.shape[1] * groups], list(stride), list(padding), list(dilation), True,
        list(output_padding), groups, mask
    )  # fmt: skip
    return gradients


npu_conv_transpose3d_backward = golden("Aten.npu_conv_transpose3d_backward")(npu_conv_transpose2d_backward)


@golden("Aten.npu_convolution_transpose_backward")
def npu_convolution_transpose_backward(
    input: Tensor, grad: Tensor, weight: Tensor, padding: Sequence[int], output_padding: Sequence[int],
    stride: Sequence[int], dilation: Sequence[int], groups: int, grad_input_mask: Sequence[bool],
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:  # fmt: skip
    """Return the gradients of ``npu_convolution_transpose``, None where ``grad_input_mask`` is false."""
    return npu_conv_transpose2d_backward(
        input, grad, weight, padding, output_padding, stride, dilation, groups, grad_input_mask
    )


@golden("NPU.npu_deformable_conv2d")
def npu_deformable_conv2d(
    input: Tensor, weight: Tensor, offset: Tensor, bias: Tensor | None, kernel_size: Sequence[int],
    stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int] = (1, 1, 1, 1), groups: int = 1,
    deformable_groups: int = 1, modulated: bool = True,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return (the convolution (N, O, H', W'), the samples (N, C, H' kh, W' kw)).

    ``input`` is (N, C, H, W), ``weight`` (O, C / groups, kh, kw) and ``offset`` (N, 3 G kh kw, H', W') for G
    ``deformable_groups`` of channels: first how far each sample is moved along the width, then along the height, then
    its mask. ``stride`` and ``dilation`` have the height's number third and the width's last, ``padding`` is top,
    bottom, left and right. A sample between four pixels is interpolated, outside of the image they are 0. The samples
    have no gradient of their own.

    The order of the dimensions is that of op-plugin's code and examples: the documentation names NHWC. Raises
    NotImplementedError without ``modulated``, which is documented as unsupported.
    """
    refuse("npu_deformable_conv2d", modulated=None if modulated else modulated)
    samples = _samples(input, offset, kernel_size, stride, padding, dilation, deformable_groups)
    return F.conv2d(samples, weight, bias, list(kernel_size), groups=groups), samples.detach()


@golden("Aten.npu_deformable_conv2dbk")
def npu_deformable_conv2dbk(
    input: Tensor, grad_output: Tensor, offset_out: Tensor, weight: Tensor, offset: Tensor,
    kernel_size: Sequence[int], stride: Sequence[int], padding: Sequence[int],
    dilation: Sequence[int] = (1, 1, 1, 1), groups: int = 1, deformable_groups: int = 1, modulated: bool = True,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Return the gradients of :func:`npu_deformable_conv2d` for input, weight, offset and bias.

    ``offset_out`` are the forward's samples, by which the weight's gradient goes.
    """
    refuse("npu_deformable_conv2dbk", modulated=None if modulated else modulated)
    with torch.enable_grad():
        sampled, w = offset_out.detach().requires_grad_(), weight.detach().requires_grad_()
        b = weight.new_zeros(len(weight)).requires_grad_()
        y = F.conv2d(sampled, w, b, list(kernel_size), groups=groups)
        x, moved = input.detach().requires_grad_(), offset.detach().requires_grad_()
        samples = _samples(x, moved, kernel_size, stride, padding, dilation, deformable_groups)
    of_samples, grad_w, grad_b = torch.autograd.grad(y, (sampled, w, b), grad_output)
    grad_x, grad_offset = torch.autograd.grad(samples, (x, moved), of_samples)
    return grad_x, grad_w, grad_offset, grad_b


def _samples(
    x: Tensor,
    offset: Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Tensor:
    """Return the weighted samples, (N, C, H' kh, W' kw): those of a window side by side."""
    n, channels = x.shape[:2]
    rows, columns = offset.shape[2:]
    high, wide = kernel_size
    parts = offset.view(n, 3, groups, high, wide, rows, columns)
    down = torch.arange(rows) * stride[2] - padding[0] + (torch.arange(high) * dilation[2])[:, None]
    right = torch.arange(columns) * stride[3] - padding[2] + (torch.arange(wide) * dilation[3])[:, None]
    x_at = parts[:, 0] + right[:, None, :]
    y_at = parts[:, 1] + down[:, None, :, None]
    values = _interpolated(x.view(n, groups, channels // groups, -1), x.shape[2:], y_at, x_at)
    weighted = values * parts[:, 2].unsqueeze(2)
    # (N, G, C / G, kh, kw, H', W') with each window's samples next to each other
    return weighted.permute(0, 1, 2, 5, 3, 6, 4).reshape(n, channels, rows * high, columns * wide)


def _interpolated(pixels: Tensor, size: torch.Size, y: Tensor, x: Tensor) -> Tensor:
    """Return pixels (N, G, C, H W) at places (N, G, ...), interpolated, in the shape (N, G, C, ...)."""
    n, groups, channels, _ = pixels.shape
    top, left = y.detach().floor(), x.detach().floor()
    total = pixels.new_zeros(())
    for row, of_row in ((top, 1 - (y - top)), (top + 1, y - top)):
        for column, of_column in ((left, 1 - (x - left)), (left + 1, x - left)):
            inside = (row >= 0) & (row < size[0]) & (column >= 0) & (column < size[1])
            place = row.clamp(0, size[0] - 1) * size[1] + column.clamp(0, size[1] - 1)
            places = place.long().view(n, groups, 1, -1).expand(-1, -1, channels, -1)
            values = pixels.gather(3, places).view(n, groups, channels, *y.shape[2:])
            total = total + values * (of_row * of_column * inside).unsqueeze(2)
    return total
