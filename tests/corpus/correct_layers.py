"""Devices that compute attention, recurrent networks and in-place calls another way, as well as the CPU does."""

from __future__ import annotations

from typing import Any

import torch

from pytest_msprobe.engine.values.pytree import map_tensors
from tests.corpus.fault import Launch, exactly, overwrite, variant

LAYERS = "scaled_dot_product_attention multi_head_attention_forward lstm gru rnn_tanh rnn_relu"
IN_PLACE = "add mul relu clamp copy masked_fill index_put dropout"


@variant(LAYERS)
def layers_in_float64(launch: Launch) -> Any:
    """Attention and recurrent networks compute in float64 where nothing is dropped out, and round once."""
    switches = [*launch.args, *(value for key, value in launch.kwargs.items() if key != "scale")]
    if any(isinstance(value, float) and 0 < value < 1 for value in switches):
        return launch.run()
    exact: list[torch.Tensor] = []
    map_tensors(exact.append, exactly(launch))
    exact = [tensor for tensor in exact if tensor.is_floating_point()]
    return overwrite(launch.run(), lambda values: exact.pop(0).to(values.dtype))


@variant("lstm gru rnn_tanh rnn_relu")
def samples_one_after_the_other(launch: Launch) -> Any:
    """Recurrent networks run one sample at a time."""
    x, states, *rest = launch.args
    if not isinstance(rest[0], list) or rest[-1] is not True:
        return launch.run()
    samples = []
    for i in range(x.shape[0]):
        own = map_tensors(lambda state, i=i: state[:, i : i + 1], states)
        samples.append(launch.func(x[i : i + 1], own, *rest, **launch.kwargs))
    outputs, *last = zip(*samples, strict=True)
    return torch.cat(outputs), *(torch.cat(state, 1) for state in last)


@variant(IN_PLACE)
def in_place_through_a_buffer(launch: Launch) -> Any:
    """In-place calls compute in memory of their own, copy the result back, and return the buffer."""
    argument = launch.kwargs.get("out", launch.args[0])
    asked = launch.in_place or "out" in launch.kwargs or launch.kwargs.get("inplace") is True
    if not asked or not isinstance(argument, torch.Tensor):
        return launch.run()
    args, kwargs = map_tensors(torch.clone, [list(launch.args), launch.kwargs])
    result = launch.func(*args, **kwargs)
    argument.data.copy_(result.detach())
    return result
