"""Mixed precision of cells: their primitives take parameters in float32 and compute with them in 16 bits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import mindspore
import torch
from mindspore import ops

from msprobe_hooks.dump.schema import ForwardRecord, tensors_of
from pytest_msprobe.engine.values.dtypes import dtype_named, is_low_precision
from pytest_msprobe.extensions.mindspore.conversion import mindspore_dtype


def narrow_dtype(record: ForwardRecord) -> torch.dtype | None:
    """Return the dtype of 16 bits that a call computed in though some inputs have more; None where it did not.

    A cell of mixed precision (``to_float``, ``amp``) has its parameters cast inside of the call, where no record sees
    it. Any other primitive but a cast widens what is narrow, so that the result is wide.
    """
    dtypes = [dtype_named(element.dtype) for element in tensors_of(record.args)]
    found = next((dtype_named(element.dtype) for element in tensors_of(record.output)), None)
    is_wider = any(each.is_floating_point and each is not found for each in dtypes)
    return found if found is not None and is_low_precision(found) and is_wider else None


def casting_target(function: Callable[..., Any], narrow: torch.dtype) -> Callable[..., Any]:
    """Return a function on MindSpore's tensors that computes with all floats cast to ``narrow``."""
    wanted = mindspore_dtype(narrow)

    def cast(value: Any) -> Any:
        is_float = isinstance(value, mindspore.Tensor) and value.is_floating_point()
        return ops.cast(value, wanted) if is_float and value.dtype != wanted else value

    return lambda *args, **kwargs: function(*map(cast, args), **kwargs)


def casting_golden(function: Callable[..., Any], narrow: torch.dtype) -> Callable[..., Any]:
    """Return a function on torch's tensors that computes with all floats rounded to ``narrow``.

    Where all of them are raised the results stay so, and gradients pass unrounded.
    """

    def call(*args: Any, **kwargs: Any) -> Any:
        floats = [each for each in args if isinstance(each, torch.Tensor) and each.is_floating_point()]
        is_raised = all(each.dtype is torch.float64 for each in floats)
        return function(*_rounded(args, narrow, is_raised=is_raised), **kwargs)

    return call


def _rounded(args: Sequence[Any], narrow: torch.dtype, *, is_raised: bool) -> list[Any]:
    def rounded(value: Any) -> Any:
        if not (isinstance(value, torch.Tensor) and value.is_floating_point()):
            return value
        cast = value.to(narrow)
        return value + (cast.to(value.dtype) - value).detach() if is_raised else cast

    return list(map(rounded, args))
