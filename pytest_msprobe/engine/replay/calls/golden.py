"""The golden side: the same call on the CPU with every float raised, arguments and ``dtype=`` alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from pytest_msprobe.engine.replay.calls.arguments import Arguments
from pytest_msprobe.engine.replay.calls.side import Invoke, Side
from pytest_msprobe.engine.replay.ops.op_info import op_info
from pytest_msprobe.engine.values.dtypes import golden_float, raised

_CONTROLS = ("grad_scale", "found_inf")
_CPU = torch.device("cpu")


def plain_call(func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], *, record: str) -> Any:
    """Call a function on the CPU."""
    return func(*args, **kwargs)


def _call_optimizer(func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], *, record: str) -> Any:
    """Call a fused optimizer, whose scale of gradients and flag for infinities are float32 whatever the rest is."""
    controls = {key: value.float() for key, value in kwargs.items() if key in _CONTROLS and value is not None}
    return func(*args, **{**kwargs, **controls})


def golden_side(operation: str, arguments: Arguments, precision: torch.dtype | None = None) -> Side:
    """Return the side that computes the golden result of a call with these arguments.

    ``precision`` is golden's dtype of floats; None leaves the choice to the arguments.
    """
    if op_info(operation).of_dtype or _reinterprets_bytes(operation, arguments):
        return baseline_side(None)
    precision = precision or golden_float(_dtypes(arguments.args, arguments.kwargs))

    def raise_dtype(dtype: torch.dtype) -> torch.dtype:
        return raised(dtype, precision)

    def place(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.detach().to(raise_dtype(tensor.dtype), copy=True)

    keeps_few_bits = op_info(operation).quantized is not None

    def raise_argument(dtype: torch.dtype) -> torch.dtype:
        # what is quantized to 8 bits is so in golden too
        return dtype if keeps_few_bits and dtype.itemsize == 1 else raise_dtype(dtype)

    invoke = _call_optimizer if operation.startswith("_fused_") else plain_call
    return Side(place, raise_argument, _CPU, invoke, default_dtype=precision, full_precision=True)


def baseline_side(autocast: torch.dtype | None, invoke: Invoke | None = None) -> Side:
    """Return the side that computes in the recorded dtypes on the CPU, as the process is set.

    With an ``invoke`` of its own, what is reduced there is all that is: the process's own modes are off.
    """
    return Side(
        lambda tensor: tensor.detach().clone(),
        lambda dtype: dtype,
        _CPU,
        invoke or plain_call,
        autocast,
        full_precision=invoke is not None,
    )


def _reinterprets_bytes(operation: str, arguments: Arguments) -> bool:
    """Return whether a call looks at the bytes of its input as another dtype's."""
    return operation == "view" and any(
        isinstance(value, torch.dtype) for value in (*arguments.args, *arguments.kwargs.values())
    )


def _dtypes(*trees: Any) -> Iterator[torch.dtype]:
    for tree in trees:
        if isinstance(tree, torch.Tensor):
            yield tree.dtype
        elif isinstance(tree, torch.dtype):
            yield tree
        elif isinstance(tree, dict):
            yield from _dtypes(*tree.values())
        elif isinstance(tree, (list, tuple)):
            yield from _dtypes(*tree)
