"""Steps of Adam and AdamW, number by number in double precision; the state is written."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from tests.support.cann.operators.by_schema import Arguments, by_schema

State = tuple[Tensor, Tensor, Tensor]


@by_schema
def npu_apply_adam(args: Arguments) -> State:
    rate = args.lr * math.sqrt(1 - args.beta2_power) / (1 - args.beta1_power)

    def step(value: float, m: float, v: float, g: float) -> tuple[float, float, float]:
        m, v = m + (g - m) * (1 - args.beta1), v + (g * g - v) * (1 - args.beta2)
        ahead = m * args.beta1 + (1 - args.beta1) * g if args.use_nesterov else m
        return value - rate * ahead / (math.sqrt(v) + args.epsilon), m, v

    return _written(step, (args.var, args.m, args.v), args.grad)


@by_schema
def npu_apply_adam_w(args: Arguments) -> State:
    largest = iter(
        (torch.zeros_like(args.grad) if args.max_grad_norm is None else args.max_grad_norm).flatten().tolist()
    )

    def step(value: float, m: float, v: float, g: float) -> tuple[float, float, float]:
        g = -g if args.maximize else g
        m, v = m + (g - m) * (1 - args.beta1), v + (g * g - v) * (1 - args.beta2)
        before = next(largest)
        second = max(v, before) if args.amsgrad else v
        size = math.sqrt(second / (1 - args.beta2_power * args.beta2)) + args.epsilon
        return (
            value - args.lr * args.weight_decay * value - args.lr * (m / (1 - args.beta1_power * args.beta1)) / size,
            m,
            v,
        )

    return _written(step, (args.var, args.m, args.v), args.grad)


def _written(step: Callable[..., tuple[float, float, float]], state: State, grad: Tensor) -> State:
    numbers = zip(*(each.flatten().tolist() for each in (*state, grad)), strict=True)
    for each, values in zip(state, zip(*(step(*four) for four in numbers), strict=True), strict=True):
        each.copy_(torch.tensor(values, dtype=torch.float64).reshape(each.shape))
    return state[0], state[1], state[2]
