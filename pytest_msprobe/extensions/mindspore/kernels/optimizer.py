"""Steps of optimizers in one kernel, by the definitions of the primitives; what they write to are their results."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch import Tensor

from pytest_msprobe.extensions.mindspore.kernels.kernel_call import KernelCall
from pytest_msprobe.extensions.mindspore.primitives import layers, optimizer

Step: TypeAlias = Callable[[KernelCall], list[Tensor]]


def step(definition: Callable[..., None], count: int, *changes: int, **choices: tuple[Any, ...]) -> Step:
    """Return a step on ``count`` inputs, of which it writes to some.

    ``choices`` are the values that each of its settings may have had, which it is not passed, where no attribute of the
    primitive holds it.
    """

    def compute(call: KernelCall) -> list[Tensor]:
        shape = call.tensor(changes[0]).shape
        tensors = [call.tensor(slot) for slot in range(count)]
        inputs = [x.reshape(shape) if x.numel() == shape.numel() else x for x in tensors]

        def by(**settings: Any) -> list[Tensor]:
            own = [tensor.clone() if slot in changes else tensor for slot, tensor in enumerate(inputs)]
            definition(*own, **settings)
            return [own[slot] for slot in changes]

        recorded = call.attributes({name: name for name in choices})
        if recorded or not choices:
            return by(**recorded)
        combined = (dict(zip(choices, values, strict=True)) for values in itertools.product(*choices.values()))
        results: list[Tensor] = call.infer_from_values(", ".join(choices), combined, by)
        return results

    return compute


_EITHER = (False, True)

adam = step(optimizer.adam, 10, 0, 1, 2, use_nesterov=_EITHER)
adam_weight_decay = step(optimizer.adam_weight_decay, 9, 0, 1, 2)
momentum = step(optimizer.momentum, 5, 0, 1, use_nesterov=_EITHER, gradient_scale=(1.0,))
rms_prop = step(optimizer.rms_prop, 8, 0, 1, 2)
adagrad = step(optimizer.adagrad, 4, 0, 1, update_slots=_EITHER)
assign_add = step(optimizer.assign_add, 2, 0)
assign_sub = step(optimizer.assign_sub, 2, 0)


def _sgd(
    parameter: Tensor,
    gradient: Tensor,
    lr: Tensor,
    accumulation: Tensor,
    momentum: Tensor,
    is_first: Tensor,
    *,
    dampening: float,
    weight_decay: float,
    nesterov: bool,
) -> None:
    gradient = gradient + weight_decay * parameter
    if momentum == 0:
        parameter.sub_(lr * gradient)
        return
    moved = accumulation * momentum + (1 - dampening) * gradient
    accumulation.copy_(torch.where(is_first > 0, gradient, moved))
    parameter.sub_(lr * (gradient + accumulation * momentum if nesterov else accumulation))
    is_first.zero_()


def sgd(call: KernelCall) -> list[Tensor]:
    """Return SGD, which is not given its weight decay either."""
    decays = (0.0, _weight_decay(call))
    return step(_sgd, 6, 0, 3, 5, dampening=(0.0,), weight_decay=decays, nesterov=_EITHER)(call)


def _weight_decay(call: KernelCall) -> float:
    """Return the decay that half of the recorded accumulation is above and half below, in three digits as it is set."""
    parameter, gradient, _, before, momentum, is_first = (call.tensor(slot).reshape(-1).double() for slot in range(6))
    momentum_term = torch.where(is_first > 0, 0, before * momentum)
    moved = call.results[1].reshape(-1).double()
    decay = float(((moved - momentum_term - gradient) / parameter).nanmedian())
    return float(f"{decay:.3g}") if math.isfinite(decay) else 0.0


def batch_norm(call: KernelCall) -> list[Tensor]:
    """Return BatchNorm, and the running statistics that it moves where they are known from before."""
    moved = [call.tensor(slot).clone() if call.has(slot) else None for slot in (3, 4)]
    names = ("is_training", "epsilon", "momentum")
    settings = {name: call.setting(name, slot) for slot, name in enumerate(names, start=5)}
    x = call.tensor(0, *call.shape)
    results = layers.batch_norm(x, *map(call.tensor, (1, 2)), *moved, data_format="NCHW", **settings)
    return [*results, *(statistic for statistic in moved if statistic is not None)]
