"""Methods of MindSpore's tensors that take what torch's of the same meaning do not, defined in torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from pytest_msprobe.engine.values.dtypes import dtype_named


def astype(self: Tensor, dtype: torch.dtype | str, copy: bool = True) -> Tensor:
    """Return the tensor in another dtype, which may be given by its name."""
    return self.to(dtype if isinstance(dtype, torch.dtype) else dtype_named(dtype), copy=copy)


def _extremum(function: Callable[..., Any], along: Callable[..., Tensor]) -> Callable[..., Any]:
    def as_numpy_does(
        self: Tensor,
        axis: int | Sequence[int] | None = None,
        keepdims: bool = False,
        *,
        initial: float | None = None,
        where: Tensor | bool = True,
        return_indices: bool = False,
    ) -> Any:
        if axis is None:
            # The other arguments then have no effect, as MindSpore documents.
            return function(self)
        if initial is not None or where is not True:
            raise NotImplementedError("an extremum with initial or where has no golden definition")
        return function(self, axis, keepdims) if return_indices else along(self, axis, keepdims)

    def extremum(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        if kwargs.keys() <= {"dim", "keepdim"} and all(isinstance(arg, int) for arg in args):
            return function(self, *args, **kwargs)
        return as_numpy_does(self, *args, **kwargs)

    return extremum


METHODS: dict[str, Callable[..., Any]] = {
    "Tensor.astype": astype,
    "Tensor.max": _extremum(torch.max, torch.amax),
    "Tensor.min": _extremum(torch.min, torch.amin),
}
