"""Steps of Adam and AdamW, number by number in double precision; the state is written."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

State = tuple[Tensor, Tensor, Tensor]


def npu_apply_adam(
    beta1_power: float,
    beta2_power: float,
    lr: float,
    beta1: float,
    beta2: float,
    epsilon: float,
    grad: Tensor,
    use_locking: bool | None,
    use_nesterov: bool | None,
    *,
    out: State,
) -> State:
    rate = lr * math.sqrt(1 - beta2_power) / (1 - beta1_power)

    def step(value: float, m: float, v: float, g: float) -> tuple[float, float, float]:
        m, v = m + (g - m) * (1 - beta1), v + (g * g - v) * (1 - beta2)
        ahead = m * beta1 + (1 - beta1) * g if use_nesterov else m
        return value - rate * ahead / (math.sqrt(v) + epsilon), m, v

    return _written(step, out, grad)


def npu_apply_adam_w(
    beta1_power: float,
    beta2_power: float,
    lr: float,
    weight_decay: float,
    beta1: float,
    beta2: float,
    epsilon: float,
    grad: Tensor,
    max_grad_norm: Tensor | None,
    amsgrad: bool | None,
    maximize: bool | None,
    *,
    out: State,
) -> State:
    largest = iter((torch.zeros_like(grad) if max_grad_norm is None else max_grad_norm).flatten().tolist())

    def step(value: float, m: float, v: float, g: float) -> tuple[float, float, float]:
        g = -g if maximize else g
        m, v = m + (g - m) * (1 - beta1), v + (g * g - v) * (1 - beta2)
        before = next(largest)
        second = max(v, before) if amsgrad else v
        size = math.sqrt(second / (1 - beta2_power * beta2)) + epsilon
        return value - lr * weight_decay * value - lr * (m / (1 - beta1_power * beta1)) / size, m, v

    return _written(step, out, grad)


def _written(step: Callable[..., tuple[float, float, float]], state: State, grad: Tensor) -> State:
    numbers = zip(*(each.flatten().tolist() for each in (*state, grad)), strict=True)
    for each, values in zip(state, zip(*(step(*four) for four in numbers), strict=True), strict=True):
        each.copy_(torch.tensor(values, dtype=torch.float64).reshape(each.shape))
    return state[0], state[1], state[2]
