"""Recorded calls as Python values: what generated tests are written in.

``recorded.Call`` is one call; ``recorded.Tensor`` represents a tensor among its arguments, ``recorded.DEVICE`` for the
device under test. Everything else is written as itself: numbers, strings, ``None``, ``...``, slices, lists, dicts,
``torch.float16``, ``mindspore.float16``, ``torch.Size([2])``.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec
import torch

from msprobe_hooks.dump.memory_layouts import Layout
from msprobe_hooks.dump.names import ApiName, parse_api_name
from msprobe_hooks.dump.schema import (
    BackwardRecord,
    Element,
    ForwardRecord,
    MappingElement,
    Number,
    TensorElement,
    ValueElement,
    walk_tensors,
)
from pytest_msprobe.engine.framework_names import PYTORCH
from pytest_msprobe.engine.replay.call import Call as ReplayedCall
from pytest_msprobe.engine.replay.calls.arguments import TensorSource, tensor_source
from pytest_msprobe.engine.values.tensor_files import load_tensor


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor as recorded: drawn from its statistics, or read from ``file`` next to the test module.

    ``dtype`` is one of the framework that recorded it: ``torch.float16``, ``mindspore.float16``.
    The statistics are those of all elements; ``finite_min`` and ``finite_max`` leave NaN and infinities out, which
    ``nan_count``, ``posinf_count`` and ``neginf_count`` count. ``numpy`` says that the call got an array. ``stride``
    and the numbers after it, in elements, say how it lay in memory: None for a contiguous one; arguments of the same
    number ``storage`` share one. ``is_conj`` and ``is_neg`` say that it had torch's conjugate or negative bit.
    """

    dtype: Any
    shape: tuple[int, ...]
    min: Number | None = None
    max: Number | None = None
    mean: Number | None = None
    norm: Number | None = None
    finite_min: Number | None = None
    finite_max: Number | None = None
    nan_count: int | None = None
    posinf_count: int | None = None
    neginf_count: int | None = None
    requires_grad: bool = False
    numpy: bool = False
    file: str | None = None
    stride: tuple[int, ...] | None = None
    storage_offset: int = 0
    storage_size: int | None = None
    storage: int | None = None
    is_conj: bool = False
    is_neg: bool = False

    @property
    def layout(self) -> Layout | None:
        """Return how it lay in memory."""
        if self.stride is None:
            return None
        bits = {"is_conj": self.is_conj, "is_neg": self.is_neg}
        return Layout(self.stride, self.storage_offset, self.storage_size, self.storage, **bits)


@dataclass(frozen=True, slots=True)
class Value:
    """An argument that has no spelling of its own, by the name of its type."""

    type: str
    value: Any


class _Device:
    """Represents the device under test where the call got a device."""


DEVICE: Final = _Device()


@dataclass(frozen=True, slots=True)
class Call:
    """One recorded call of ``framework``, as dumps name it.

    ``outputs`` holds the tensors that it returned, which say whether autocast was on; ``grad_outputs`` is what
    arrived for its outputs in the backward pass, None where nothing was recorded. ``inputs`` holds tensors that are
    given, and not drawn, by their place (``args.0``, ``kwargs.weight``, ``grad.0``): the tensor, or its file, as seen
    from the test module.
    """

    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    outputs: Sequence[Tensor] = ()
    grad_outputs: Sequence[Any] | None = None
    framework: str = PYTORCH
    inputs: Mapping[str, torch.Tensor | str] = field(default_factory=dict)

    def given_tensors(self, call: ReplayedCall, seed: int) -> TensorSource | None:
        """Return what gives the tensors: those of ``inputs``, the others drawn; None where there are no inputs."""
        if not self.inputs:
            return None
        drawn = tensor_source(call, seed=seed, real_data=True)

        def source(element: TensorElement, path: str) -> torch.Tensor:
            tensor = self.inputs.get(path)
            if tensor is None:
                return drawn(element, path)
            if isinstance(tensor, str):
                return load_tensor(msgspec.structs.replace(element, data_name=tensor), call.tensor_folder)
            return tensor

        return source

    def gives_arguments(self, call: ReplayedCall) -> bool:
        """Return whether every tensor among the arguments is in ``inputs``: none is drawn, none read as recorded."""
        walked = (*walk_tensors(call.forward.args, "args"), *walk_tensors(call.forward.kwargs, "kwargs"))
        return bool(self.inputs) and all(path in self.inputs for path, _ in walked)

    def replayed_as(self, record: str, folder: Path) -> ReplayedCall:
        """Return the call of that record for the replay engine; tensor files lie in ``folder``.

        Raises ValueError where ``record`` is not the name of an API record.
        """
        name = parse_api_name(record)
        forward = ForwardRecord(
            name=name.forward,
            args=[_element(value) for value in self.args],
            kwargs={key: _element(value) for key, value in self.kwargs.items()},
            output=[_element(tensor) for tensor in self.outputs],
            parameters={},
        )
        return ReplayedCall(parse_api_name(forward.name), forward, self._backward(name), folder)

    def _backward(self, name: ApiName) -> BackwardRecord | None:
        if self.grad_outputs is None:
            return None
        grad_outputs = [_element(value) for value in self.grad_outputs]
        return BackwardRecord(name=name.backward, grad_outputs=grad_outputs, grad_inputs=[])


def _element(value: Any) -> Element:
    """Return the element that a recording would hold for a value."""
    if value is None:
        return None
    if isinstance(value, Tensor):
        return _tensor_element(value)
    if isinstance(value, Value):
        return ValueElement(value.type, value.value)
    if value is DEVICE:
        return ValueElement("torch.device", "")
    if isinstance(value, torch.Size):
        return ValueElement("torch.Size", list(value))
    if isinstance(value, (list, tuple)):
        return [_element(item) for item in value]
    if isinstance(value, dict):
        return MappingElement({key: _element(item) for key, item in value.items()})
    return _value_element(value)


def _tensor_element(tensor: Tensor) -> TensorElement:
    return TensorElement(
        type=_tensor_type(tensor),
        dtype=str(tensor.dtype),
        shape=tuple(tensor.shape),
        max=tensor.max,
        min=tensor.min,
        mean=tensor.mean,
        norm=tensor.norm,
        finite_max=tensor.finite_max,
        finite_min=tensor.finite_min,
        nan_count=tensor.nan_count,
        posinf_count=tensor.posinf_count,
        neginf_count=tensor.neginf_count,
        requires_grad=tensor.requires_grad,
        data_name=tensor.file,
        layout=tensor.layout,
    )


def _value_element(value: Any) -> ValueElement:
    if isinstance(value, slice):
        return ValueElement("slice", [value.start, value.stop, value.step])
    if value is ...:
        return ValueElement("ellipsis", "...")
    if isinstance(value, complex):
        return ValueElement("complex", [value.real, value.imag])
    if _is_mindspore_dtype(value):
        return ValueElement("mindspore.dtype", str(value))
    for kind in (torch.dtype, torch.memory_format, torch.layout):
        if isinstance(value, kind):
            return ValueElement(f"torch.{kind.__name__}", str(value))
    return ValueElement(type(value).__name__, value)


def _tensor_type(tensor: Tensor) -> str:
    if tensor.numpy:
        return "numpy.ndarray"
    return "mindspore.Tensor" if _is_mindspore_dtype(tensor.dtype) else "torch.Tensor"


def _is_mindspore_dtype(value: Any) -> bool:
    # Whoever has such a value has imported it.
    mindspore = sys.modules.get("mindspore")
    return mindspore is not None and isinstance(value, mindspore.Type)
