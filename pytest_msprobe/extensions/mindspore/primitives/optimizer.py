"""Steps of optimizers in one kernel: what they are given first is what they change."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

#: A number, or a tensor that holds one.
Scalar = Any


def adam(
    parameter: Tensor,
    m: Tensor,
    v: Tensor,
    beta1_power: Scalar,
    beta2_power: Scalar,
    lr: Scalar,
    beta1: Scalar,
    beta2: Scalar,
    epsilon: Scalar,
    gradient: Tensor,
    *,
    use_nesterov: bool,
) -> None:
    """Move a parameter by its gradient's mean over the root of its mean square (Kingma and Ba, 2015)."""
    m.add_((gradient - m) * (1 - beta1))
    v.add_((gradient * gradient - v) * (1 - beta2))
    rate = lr * torch.sqrt(torch.as_tensor(1 - beta2_power, dtype=v.dtype)) / (1 - beta1_power)
    mean = m * beta1 + (1 - beta1) * gradient if use_nesterov else m
    parameter.sub_(rate * mean / (v.sqrt() + epsilon))


def adam_weight_decay(
    parameter: Tensor,
    m: Tensor,
    v: Tensor,
    lr: Scalar,
    beta1: Scalar,
    beta2: Scalar,
    epsilon: Scalar,
    decay: Scalar,
    gradient: Tensor,
) -> None:
    """Move a parameter as Adam does, without correction of the first steps, and towards zero by ``decay``."""
    m.copy_(beta1 * m + (1 - beta1) * gradient)
    v.copy_(beta2 * v + (1 - beta2) * gradient * gradient)
    parameter.sub_(lr * (m / (v.sqrt() + epsilon) + decay * parameter))


def momentum(
    parameter: Tensor,
    accumulation: Tensor,
    lr: Scalar,
    gradient: Tensor,
    momentum: Scalar,
    *,
    use_nesterov: bool,
    gradient_scale: float,
) -> None:
    """Move a parameter by what its gradients have accumulated."""
    gradient = gradient * gradient_scale
    accumulation.copy_(accumulation * momentum + gradient)
    step = gradient + accumulation * momentum if use_nesterov else accumulation
    parameter.sub_(step * lr)


def rms_prop(
    parameter: Tensor,
    mean_square: Tensor,
    moment: Tensor,
    learning_rate: Scalar,
    gradient: Tensor,
    decay: Scalar,
    momentum: Scalar,
    epsilon: Scalar,
) -> None:
    """Move a parameter by its gradient over the root of its mean square."""
    mean_square.copy_(decay * mean_square + (1 - decay) * gradient * gradient)
    moment.copy_(momentum * moment + learning_rate * gradient * torch.rsqrt(mean_square + epsilon))
    parameter.sub_(moment)


def adagrad(parameter: Tensor, accumulation: Tensor, lr: Scalar, gradient: Tensor, *, update_slots: bool) -> None:
    """Move a parameter by its gradient over the root of the sum of all squares so far."""
    if update_slots:
        accumulation.add_(gradient * gradient)
    parameter.sub_(lr * gradient * torch.rsqrt(accumulation))


def assign(variable: Tensor, value: Scalar) -> None:
    """Write a value."""
    variable.copy_(torch.as_tensor(value, dtype=variable.dtype))


def assign_add(variable: Tensor, value: Scalar) -> None:
    """Add a value."""
    variable.add_(value)


def assign_sub(variable: Tensor, value: Scalar) -> None:
    """Subtract a value."""
    variable.sub_(value)
