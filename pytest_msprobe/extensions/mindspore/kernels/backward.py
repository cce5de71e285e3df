"""Kernels that a backward pass alone runs: gradients of the definitions by torch's autograd, or by its own kernels.

Torch's kernels are taken where a kernel is given what the forward pass found, such as a mean, and not what it was found
from.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from pytest_msprobe.extensions.mindspore.kernels.forward import MASKS
from pytest_msprobe.extensions.mindspore.kernels.kernel_call import KernelCall, gradient
from pytest_msprobe.extensions.mindspore.primitives import axes, layers

aten = torch.ops.aten


def of_input(function: Callable[[Tensor], Tensor], x: int, dy: int) -> Callable[[KernelCall], Tensor]:
    """Return the gradient of a function of elements, of whose input and arriving gradient the slots are given."""
    return lambda call: gradient(function, call.like_result(x), call.like_result(dy))


def of_result(kernel: Callable[[Tensor, Tensor], Tensor], y: int, dy: int) -> Callable[[KernelCall], Tensor]:
    """Return a gradient that follows from the result of the forward pass and what arrives."""
    return lambda call: kernel(call.like_result(dy), call.like_result(y))


def relu(dy: Tensor, y: Tensor) -> Tensor:
    """Return the gradient of ReLU."""
    return torch.where(y > 0, dy, 0)


def sqrt(dy: Tensor, y: Tensor) -> Tensor:
    """Return the gradient of a root."""
    return dy / (2 * y)


def rsqrt(dy: Tensor, y: Tensor) -> Tensor:
    """Return the gradient of the reciprocal of a root."""
    return dy * y**3 / -2


def reciprocal(dy: Tensor, y: Tensor) -> Tensor:
    """Return the gradient of a reciprocal."""
    return -dy * y * y


def bias_add(call: KernelCall) -> Tensor:
    """Return BiasAddGrad: the sum of what arrives for each channel."""
    dy, (channels,) = call.tensor(0), call.shape
    if call.setting("format", 1) == 1:
        return dy.reshape(-1, channels).sum(0)
    if call.declared_shape(0) is not None:
        return dy.sum([axis for axis in range(dy.dim()) if axis != 1])
    is_flat = dy.dim() < 4 and dy.shape[-1] == channels
    if is_flat:
        return dy.reshape(-1, channels).sum(0)
    if dy.shape[1] != channels or dy.shape[-1] == channels:
        raise call.lacks("the shape of input.0")
    return dy.sum([axis for axis in range(dy.dim()) if axis != 1])


def layer_norm(call: KernelCall) -> Any:
    """Return LayerNormGrad, from the mean and variance that the forward pass found."""
    x, dy, variance, mean, gamma = (call.tensor(slot) for slot in range(5))
    x, dy = x.reshape(call.shape), dy.reshape(call.shape)
    first = call.setting("begin_norm_axis", 5) % x.dim()
    shape = (*x.shape[:first], *[1] * (x.dim() - first))
    deviation = torch.rsqrt(variance.reshape(shape) + call.setting("epsilon"))
    output_mask = [True, True, True]
    weight = gamma.reshape(x.shape[first:])
    return aten.native_layer_norm_backward(
        dy, x, x.shape[first:], mean.reshape(shape), deviation, weight, weight, output_mask
    )


def batch_norm(call: KernelCall) -> tuple[Tensor, ...]:
    """Return BatchNormGrad in training: the gradients of the image, the scale and the bias."""
    if not call.setting("is_training", 6):
        raise NotImplementedError("BatchNormGrad with given statistics has no golden definition")
    dy, x, scale = call.tensor(0, *call.shape), call.tensor(1, *call.shape), call.tensor(2)
    settings: dict[str, Any] = {"is_training": True, "epsilon": call.setting("epsilon", 7), "momentum": 0.0}
    with torch.enable_grad():
        image, weight, bias = (operand.detach().requires_grad_() for operand in (x, scale, torch.zeros_like(scale)))
        running = torch.zeros_like(scale), torch.ones_like(scale)
        (y,) = layers.batch_norm(image, weight, bias, *running, **settings, data_format="NCHW")
        return torch.autograd.grad(y, (image, weight, bias), dy)


def group_norm(call: KernelCall) -> Any:
    """Return GroupNormGrad, from the mean and the reciprocal deviation that the forward pass found."""
    dy, x = call.tensor(0, *call.shape), call.tensor(1, *call.shape)
    mean, deviation, gamma = (call.tensor(slot) for slot in (2, 3, 4))
    batch, channels = x.shape[:2]
    output_mask = [True, True, True]
    return aten.native_group_norm_backward(
        dy, x, mean, deviation, gamma, batch, channels, x[0, 0].numel(), call.setting("num_groups", 5), output_mask
    )


def strided_slice(call: KernelCall) -> Tensor:
    """Return StridedSliceGrad: what arrives where it was cut out, zeros otherwise."""
    masks = {name: call.setting(name) for name in MASKS}
    bounds = [call.setting(name, slot) for slot, name in enumerate(("begin", "end", "strides"), start=2)]
    whole = call.tensor(0).new_zeros(call.shape)

    def cut(x: Tensor) -> Tensor:
        return axes.strided_slice(x, *bounds, **masks)

    return gradient(cut, whole, call.tensor(0, *cut(whole).shape))


def log_softmax(call: KernelCall) -> Tensor:
    """Return LogSoftmaxGrad, from the result of the forward pass."""
    y, dy = call.tensor(0, *call.shape), call.tensor(1, *call.shape)
    total: Tensor = dy.sum(call.setting("axis", 2), keepdim=True)
    return dy - y.exp() * total


def dropout(call: KernelCall) -> Tensor:
    """Return DropoutGrad."""
    keep_prob: float = call.setting("keep_prob")
    return call.like_result(0) * call.like_result(1) / keep_prob


def gather_elements(call: KernelCall) -> Tensor:
    """Return GatherDGradV2: what arrives, added up at the places that were taken."""
    index = call.tensor(2)
    dy = call.tensor(3, *index.shape)
    return dy.new_zeros(call.shape).scatter_add_(call.setting("dim", 1), index.long(), dy)
