"""What MindSpore's values become in a record."""

from __future__ import annotations

from typing import Any

from mindspore import Tensor
from mindspore._c_expression import typing as dtypes

from msprobe_hooks.recording.elements import NOT_OWN, Elements, TensorEntry


class MindSporeElements(Elements):
    """Builds the elements of one record."""

    __slots__ = ()

    tensor_class = Tensor
    suffix = ".npy"

    def describe(self, tensor: Tensor) -> TensorEntry:
        """Return a tensor's entry without its values."""
        shape = [int(size) for size in tensor.shape]
        return TensorEntry("mindspore.Tensor", str(tensor.dtype), shape, None, None, None, None, takes_gradient(tensor))

    def own(self, value: Any, path: str) -> Any:
        """Return the spelling of dtypes."""
        if isinstance(value, dtypes.Type):
            return {"type": "mindspore.dtype", "value": str(value)}
        return NOT_OWN


def takes_gradient(tensor: Tensor) -> bool:
    """Return whether a gradient function that is running differentiates by this tensor."""
    return bool(tensor._requires_grad)
