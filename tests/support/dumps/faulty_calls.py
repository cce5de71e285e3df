"""Faults in what a training computes: calls of one function give something else than they should."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode


class Changed(TorchFunctionMode):
    """Has what a function returns changed while it is on, below every mode that is entered later."""

    def __init__(self, function: Callable[..., Any], change: Callable[[Any], Any]) -> None:
        super().__init__()
        self._function = function
        self._change = change

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        return self._change(result) if func is self._function else result


class ChangedKernel(TorchDispatchMode):
    """The same for an operator that reaches a kernel."""

    def __init__(self, operator: Callable[..., Any], change: Callable[[Any], Any]) -> None:
        super().__init__()
        self._operator = operator
        self._change = change

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        return self._change(result) if func is self._operator else result


def with_gradient_times(factor: float) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return what leaves a tensor as it is and multiplies its gradient."""
    return lambda tensor: _Scaled.apply(tensor, factor)


class _Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, factor: float) -> torch.Tensor:
        ctx.factor = factor
        return tensor.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        return gradients[0] * ctx.factor, None
