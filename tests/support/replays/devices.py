"""Devices that compute on the CPU and then change what came out; gradients flow as if they had not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from pytest_msprobe.devices.sim import SimDevice
from pytest_msprobe.engine.values.pytree import map_tensors

#: For the fixture ``make_device``: every third run of the call errs by far less than any standard sees.
UNSTEADY = """
global runs
if record == 'Functional.softmax.0.forward':
    runs = globals().get('runs', 0) + 1
    if runs % 3 == 0:
        change = torch.zeros(result.shape)
        change[0, 0] = 2**-20
        result = result + change
"""


class Altered(SimDevice):
    """Runs forward calls through ``alter(func, args, kwargs)``."""

    name = "altered"

    def __init__(self, alter: Callable[[Any, Any, Any], Any]) -> None:
        self._alter = alter

    def call(self, func: Any, args: Any, kwargs: Any, *, record: str) -> Any:
        return self._alter(func, args, kwargs) if record.endswith(".forward") else func(*args, **kwargs)


class Faulty(SimDevice):
    """Sends every float tensor that comes out, if it has elements, through a function."""

    def __init__(self, change: Callable[[torch.Tensor], torch.Tensor]) -> None:
        self._change = change

    def call(self, func: Any, args: Any, kwargs: Any, *, record: str) -> Any:
        return map_tensors(self._changed, func(*args, **kwargs))

    def _changed(self, tensor: torch.Tensor) -> torch.Tensor:
        if not tensor.is_floating_point() or not tensor.numel():
            return tensor
        return _in_place_of(tensor, self._change(tensor.detach().clone()))


class OneOff(SimDevice):
    """Adds one to the first element of whatever comes out, and makes it zero where that changes nothing."""

    name = "one-off"

    def call(self, func: Any, args: Any, kwargs: Any, *, record: str) -> Any:
        return map_tensors(_one_off, func(*args, **kwargs))


def _one_off(tensor: torch.Tensor) -> torch.Tensor:
    if not tensor.numel():
        return tensor
    wrong = tensor.detach().clone()
    first = wrong.view(-1)[0]
    wrong.view(-1)[0] = ~first if wrong.dtype is torch.bool else first + 1 if first.isfinite() else 0
    return _in_place_of(tensor, wrong)


def _in_place_of(tensor: torch.Tensor, changed: torch.Tensor) -> torch.Tensor:
    """Return the changed values, in the graph where the right ones were."""
    return tensor + (changed - tensor.detach()) if tensor.requires_grad else changed
