"""Gradients of normalizations, from the statistics that their forwards return."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor


def _of_normalized(grad: Tensor, normalized: Tensor, rstd: Tensor, dims: Sequence[int]) -> Tensor:
    """Return the gradient for x of normalized = (x - mean) * rstd over ``dims``, both depending on x."""
    along = (grad * normalized).mean(list(dims), keepdim=True)
    return rstd * (grad - grad.mean(list(dims), keepdim=True) - normalized * along)


def _like_rows(statistic: Tensor, x: Tensor, dims: int) -> Tensor:
    """Add to a statistic of the last ``dims`` dimensions of ``x`` that many dimensions of size 1."""
    return statistic.reshape(*x.shape[: x.dim() - dims], *[1] * dims)


def npu_layernorm_grad(
    grad_out: Tensor,
    input: Tensor,  # noqa: A002
    normalized_shape: Sequence[int],
    mean: Tensor,
    rstd: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Return the gradients of layer normalization over the last dimensions for input, weight and bias.

    Nothing is promised of the latter two, here None, where there is no weight and no bias.
    """
    count = len(normalized_shape)
    centre, scale = _like_rows(mean, input, count), _like_rows(rstd, input, count)
    normalized = (input - centre) * scale
    shape = list(normalized_shape)
    grad = grad_out if weight is None else grad_out * weight
    return (
        _of_normalized(grad, normalized, scale, range(-count, 0)),
        None if weight is None else (grad_out * normalized).sum_to_size(shape),
        None if bias is None else grad_out.sum_to_size(shape),
    )


def npu_add_layer_norm_backward(
    dy_opt: Tensor | None,
    x1: Tensor,
    x2: Tensor,
    rstd: Tensor,
    mean: Tensor,
    gamma: Tensor,
    dsum_opt: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the gradients of ``npu_add_layer_norm`` for x1, x2 (the same), gamma and beta.

    ``dy_opt`` and ``dsum_opt`` are those of its results y and x; one that is missing counts as 0.
    """
    x = x1 + x2
    dy = torch.zeros_like(x) if dy_opt is None else dy_opt
    dx, dgamma, dbeta = npu_layernorm_grad(dy, x, gamma.shape, mean, rstd, gamma, gamma)
    if dgamma is None or dbeta is None:
        raise ValueError("npu_add_layer_norm_backward needs gamma")
    dx = dx if dsum_opt is None else dx + dsum_opt
    return dx, dx.clone(), dgamma, dbeta


def npu_deep_norm_backward(
    dy: Tensor, x: Tensor, gx: Tensor, gamma: Tensor, mean: Tensor, rstd: Tensor, alpha: float = 0.3
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the gradients of ``npu_deep_norm`` for x, gx, beta and gamma, in this order."""
    dz, dgamma, dbeta = npu_layernorm_grad(dy, alpha * x + gx, gamma.shape, mean, rstd, gamma, gamma)
    if dgamma is None or dbeta is None:
        raise ValueError("npu_deep_norm_backward needs gamma")
    return alpha * dz, dz, dbeta, dgamma


def npu_group_norm_swish_grad(
    grad: Tensor,
    input: Tensor,  # noqa: A002
    num_groups: int,
    weight: Tensor,
    bias: Tensor,
    mean: Tensor,
    rstd: Tensor,
    grad_input_mask: Sequence[bool],
    swish_scale: float | None = 1.0,
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Return the gradients of ``npu_group_norm_swish`` for input, weight and bias, None where the mask is false.

    ``input`` is (N, C, ...), ``mean`` and ``rstd`` are (N, num_groups).
    """
    slope = 1.0 if swish_scale is None else swish_scale
    batch, channels = input.shape[:2]
    grouped = input.reshape(batch, num_groups, -1)
    scale = rstd.reshape(batch, num_groups, 1)
    normalized = (grouped - mean.reshape(batch, num_groups, 1)) * scale
    by_channel = normalized.reshape(batch, channels, -1)
    y = by_channel * weight.reshape(1, channels, 1) + bias.reshape(1, channels, 1)
    sigmoid = torch.sigmoid(slope * y)
    dy = grad.reshape(batch, channels, -1) * sigmoid * (1 + slope * y * (1 - sigmoid))
    of_groups = (dy * weight.reshape(1, channels, 1)).reshape(batch, num_groups, -1)
    wants_input, wants_weight, wants_bias = grad_input_mask
    return (
        _of_normalized(of_groups, normalized, scale, [-1]).reshape(input.shape) if wants_input else None,
        (dy * by_channel).sum((0, 2)) if wants_weight else None,
        dy.sum((0, 2)) if wants_bias else None,
    )


def npu_renorm_backward(
    grad: Tensor,
    self: Tensor,
    p: float,
    dim: int,
    maxnorm: float,
) -> Tensor:
    """Return the gradient of ``torch.renorm``, which brings the slices along ``dim`` to a norm of ``maxnorm`` at most.

    The slices below that norm get the gradient as it is. What torch adds to a norm before it divides, 1e-7, is there.
    """
    with torch.enable_grad():
        x = self.detach().clone().requires_grad_()
        (found,) = torch.autograd.grad(torch.renorm(x, p, dim, maxnorm), x, grad)
    return found
