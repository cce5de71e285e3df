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
from pytest_msprobe.extensions.mindspore.primitives import layout, normalization

aten = torch.ops.aten


def of_input(function: Callable[[Tensor], Tensor], x: int, dy: int) -> Callable[[KernelCall], Tensor]:
    """Return the gradient of a function of elements, of whose input and arriving gradient the slots are given."""
    return lambda given: gradient(function, given.like_result(x), given.like_result(dy))


def of_result(kernel: Callable[[Tensor, Tensor], Tensor], y: int, dy: int) -> Callable[[KernelCall], Tensor]:
    """Return a gradient that follows from the result of the forward pass and what arrives."""
    return lambda given: kernel(given.like_result(dy), given.like_result(y))


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


def bias_add(given: KernelCall) -> Tensor:
    """Return BiasAddGrad: the sum of what arrives for each channel."""
    dy, (channels,) = given.tensor(0), given.shape
    if given.setting("format", 1) == 1:
        return dy.reshape(-1, channels).sum(0)
    if given.declared_shape(0) is not None:
        return dy.sum([axis for axis in range(dy.dim()) if axis != 1])
    is_flat = dy.dim() < 4 and dy.shape[-1] == channels
    if is_flat:
        return dy.reshape(-1, channels).sum(0)
    if dy.shape[1] != channels or dy.shape[-1] == channels:
        raise given.lacks("the shape of input.0")
    return dy.sum([axis for axis in range(dy.dim()) if axis != 1])


def layer_norm(given: KernelCall) -> Any:
    """Return LayerNormGrad, from the mean and variance that the forward pass found."""
    x, dy, variance, mean, gamma = (given.tensor(slot) for slot in range(5))
    x, dy = x.reshape(given.shape), dy.reshape(given.shape)
    first = given.setting("begin_norm_axis", 5) % x.dim()
    shape = (*x.shape[:first], *[1] * (x.dim() - first))
    deviation = torch.rsqrt(variance.reshape(shape) + given.setting("epsilon"))
    wanted = [True, True, True]
    weight = gamma.reshape(x.shape[first:])
    return aten.native_layer_norm_backward(
        dy, x, x.shape[first:], mean.reshape(shape), deviation, weight, weight, wanted
    )


def batch_norm(given: KernelCall) -> tuple[Tensor, ...]:
    """Return BatchNormGrad in training: the gradients of the image, the scale and the bias."""
    if not given.setting("is_training", 6):
        raise NotImplementedError("BatchNormGrad with given statistics has no golden definition")
    dy, x, scale = given.tensor(0, *given.shape), given.tensor(1, *given.shape), given.tensor(2)
    settings: dict[str, Any] = {"is_training": True, "epsilon": given.setting("epsilon", 7), "momentum": 0.0}
    with torch.enable_grad():
        image, weight, bias = (each.detach().requires_grad_() for each in (x, scale, torch.zeros_like(scale)))
        running = torch.zeros_like(scale), torch.ones_like(scale)
        (y,) = normalization.batch_norm(image, weight, bias, *running, **settings, data_format="NCHW")
        return torch.autograd.grad(y, (image, weight, bias), dy)


def group_norm(given: KernelCall) -> Any:
    """Return GroupNormGrad, from the mean and the reciprocal deviation that the forward pass found."""
    dy, x = given.tensor(0, *given.shape), given.tensor(1, *given.shape)
    mean, deviation, gamma = (given.tensor(slot) for slot in (2, 3, 4))
    batch, channels = x.shape[:2]
    wanted = [True, True, True]
    return aten.native_group_norm_backward(
        dy, x, mean, deviation, gamma, batch, channels, x[0, 0].numel(), given.setting("num_groups", 5), wanted
    )


def strided_slice(given: KernelCall) -> Tensor:
    """Return StridedSliceGrad: what arrives where it was cut out, zeros otherwise."""
    masks = {name: given.setting(name) for name in MASKS}
    bounds = [given.setting(name, slot) for slot, name in enumerate(("begin", "end", "strides"), start=2)]
    whole = given.tensor(0).new_zeros(given.shape)

    def cut(x: Tensor) -> Tensor:
        return layout.strided_slice(x, *bounds, **masks)

    return gradient(cut, whole, given.tensor(0, *cut(whole).shape))


def log_softmax(given: KernelCall) -> Tensor:
    """Return LogSoftmaxGrad, from the result of the forward pass."""
    y, dy = given.tensor(0, *given.shape), given.tensor(1, *given.shape)
    total: Tensor = dy.sum(given.setting("axis", 2), keepdim=True)
    return dy - y.exp() * total


def dropout(given: KernelCall) -> Tensor:
    """Return DropoutGrad."""
    keep_prob: float = given.setting("keep_prob")
    return given.like_result(0) * given.like_result(1) / keep_prob


def gather_elements(given: KernelCall) -> Tensor:
    """Return GatherDGradV2: what arrives, added up at the places that were taken."""
    index = given.tensor(2)
    dy = given.tensor(3, *index.shape)
    return dy.new_zeros(given.shape).scatter_add_(given.setting("dim", 1), index.long(), dy)
