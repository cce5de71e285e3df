"""What MindSpore's values become in a record."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from mindspore import Tensor
from mindspore._c_expression import typing as dtypes

from msprobe_hooks.dump.memory_layouts import contiguous_stride
from msprobe_hooks.recording.elements import NOT_OWN, Elements, TensorEntry


class MindSporeElements(Elements):
    """Builds the elements of one record."""

    __slots__ = ()

    tensor_class = Tensor
    suffix = ".npy"

    def describe(self, tensor: Tensor) -> TensorEntry:
        """Return a tensor's entry without its values."""
        shape = [int(size) for size in tensor.shape]
        entry = TensorEntry(
            "mindspore.Tensor", str(tensor.dtype), shape, None, None, None, None, takes_gradient(tensor)
        )
        # Older versions do not say how a tensor lies in memory, and neither do those inside of a function transform.
        with suppress(AttributeError, NotImplementedError, RuntimeError, TypeError, ValueError):
            _describe_memory(tensor, shape, entry)
        return entry

    def own(self, value: Any, path: str) -> Any:
        """Return the spelling of dtypes."""
        if isinstance(value, dtypes.Type):
            return {"type": "mindspore.dtype", "value": str(value)}
        return NOT_OWN


def _describe_memory(tensor: Tensor, shape: list[int], entry: TensorEntry) -> None:
    if 0 in shape:
        return
    if not tensor.is_contiguous():
        stride = [int(step) for step in tensor.stride()]
        # MindSpore calls some parts of a storage not contiguous that are.
        if tuple(stride) != contiguous_stride(shape):
            entry.stride = stride
    if offset := int(tensor.storage_offset()):
        entry.storage_offset = offset


def takes_gradient(tensor: Tensor) -> bool:
    """Return whether a gradient function that is running differentiates by this tensor."""
    return bool(tensor._requires_grad)
