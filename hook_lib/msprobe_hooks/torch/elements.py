"""What a Python value becomes in a record.

Spelled as msprobe spells it. What that spelling loses (that a list was a tuple, a namedtuple's class, a complex number,
a positional dtype) is kept beside it in the record's ``details``: path of the element, such as ``input.1``, to what it
was.
"""

from __future__ import annotations

import dataclasses
import enum
import math
import sys
import zlib
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import numpy as np
import torch
from msgspec import UNSET, UnsetType
from torch import Tensor

from msprobe_hooks.torch.statistics import Statistics
from msprobe_hooks.writer import json_number

# Each level takes three Python frames, and the program that is recorded needs its own.
_MAX_DEPTH = 100


class TensorEntry(msgspec.Struct):
    """A tensor as written; the field names and their order are the file's."""

    type: str
    dtype: str
    shape: list[int]
    Max: Any = UNSET
    Min: Any = UNSET
    Mean: Any = UNSET
    Norm: Any = UNSET
    requires_grad: bool | UnsetType = UNSET
    Max_except_inf_nan: Any = UNSET
    Min_except_inf_nan: Any = UNSET
    md5: str | UnsetType = UNSET
    data_name: str | UnsetType = UNSET
    memory_format: str | UnsetType = UNSET
    stride: list[int] | UnsetType = UNSET
    device_mesh: list[int] | UnsetType = UNSET
    placements: list[Any] | UnsetType = UNSET

    def fill(self, statistics: Statistics) -> None:
        """Take over the numbers."""
        self.Max = json_number(statistics.max)
        self.Min = json_number(statistics.min)
        self.Mean = json_number(statistics.mean)
        self.Norm = json_number(statistics.norm)
        if statistics.finite_max is not None:
            self.Max_except_inf_nan = json_number(statistics.finite_max)
        if statistics.finite_min is not None:
            self.Min_except_inf_nan = json_number(statistics.finite_min)
        if statistics.checksum is not None:
            self.md5 = statistics.checksum


_DTYPES: dict[torch.dtype, str] = {}

_TYPES = {
    "DTensor": "torch.distributed.tensor.DTensor",
    "FakeTensor": "torch._subclasses.fake_tensor.FakeTensor",
    "AsyncCollectiveTensor": "torch.distributed._functional_collectives.AsyncCollectiveTensor",
    "NestedTensor": "torch.nested._internal.nested_tensor.NestedTensor",
}

Summarise = Callable[[Tensor, TensorEntry], None]
Save = Callable[[Tensor, str], str]


class Elements:
    """Builds the elements of one record.

    ``summarise`` fills a tensor's entry with what is collected of its values; ``save`` (or None) stores the values and
    returns the name of their file.
    """

    __slots__ = ("_save", "_summarise", "details", "name")

    def __init__(self, name: str, summarise: Summarise, save: Save | None) -> None:
        self.name = name
        self.details: dict[str, Any] = {}
        self._summarise = summarise
        self._save = save

    def sequence(self, values: Any, category: str) -> list[Any]:
        """Return the elements of positional values; ``category`` starts their paths."""
        return [self.element(value, f"{category}.{place}") for place, value in enumerate(values)]

    def mapping(self, values: Mapping[str, Any], category: str) -> dict[str, Any]:
        """Return the elements of named values."""
        return {key: self._named(key, value, f"{category}.{key}") for key, value in values.items()}

    def output(self, value: Any) -> list[Any]:
        """Return the elements of what a call returned: a tuple's or list's, or the single one."""
        if isinstance(value, (tuple, list)):
            self._note_container(value, "output")
            return self.sequence(value, "output")
        return [self.element(value, "output.0")]

    def whole(self, value: Any) -> Any:
        """Return what a record that is one value becomes; tensors inside are filed under their place alone."""
        if isinstance(value, Mapping):
            return {str(key): self.element(item, str(key)) for key, item in value.items()}
        if isinstance(value, (tuple, list)):
            return [self.element(item, str(place)) for place, item in enumerate(value)]
        return self.element(value, "")

    def element(self, value: Any, path: str, depth: int = 0) -> Any:
        """Return what one value becomes in JSON."""
        kind = type(value)
        if kind in _SCALARS:
            return {"type": kind.__name__, "value": json_number(value)}
        if value is None:
            return None
        if isinstance(value, Tensor):
            return self._tensor(value, path)
        if kind is tuple or kind is list:
            if kind is tuple:
                self.details[path] = {"container": "tuple"}
            return self._nested(value, path, depth)
        return self._rare(value, path, depth)

    def _tensor(self, tensor: Tensor, path: str) -> TensorEntry:
        entry = tensor_entry(tensor)
        self._summarise(tensor, entry)
        if self._save is not None:
            entry.data_name = self._save(tensor, f"{self.name}.{path}.pt" if path else f"{self.name}.pt")
        return entry

    def _nested(self, values: Any, path: str, depth: int) -> Any:
        if depth >= _MAX_DEPTH:
            self.details[path] = {"nested_deeper_than": _MAX_DEPTH}
            return None
        return [self.element(value, f"{path}.{place}", depth + 1) for place, value in enumerate(values)]

    def _named(self, key: Any, value: Any, path: str, depth: int = 0) -> Any:
        if key in ("dtype", "output_dtype") and isinstance(value, torch.dtype):
            return {"type": "torch.dtype", "value": str(value)}
        if key == "device" and value is not None:
            return {"type": "torch.device", "value": _device(value)}
        return self.element(value, path, depth)

    def _note_container(self, value: Any, path: str) -> None:
        if type(value) is tuple:
            self.details[path] = {"container": "tuple"}
        elif type(value) is not list:
            self.details[path] = {"container": f"{type(value).__module__}.{type(value).__qualname__}"}

    def _rare(self, value: Any, path: str, depth: int) -> Any:
        for types, convert in _CONVERSIONS:
            if isinstance(value, types):
                return convert(value)
        if isinstance(value, (torch.dtype, torch.device)):
            self.details[path] = {"type": f"torch.{type(value).__name__}", "value": str(value)}
            return {}
        if isinstance(value, torch.layout):
            self.details[path] = {"type": "torch.layout", "value": str(value)}
            return None
        if isinstance(value, complex):
            self.details[path] = {"type": "complex", "value": [json_number(value.real), json_number(value.imag)]}
            return None
        if isinstance(value, np.ndarray):
            return _array(value)
        if isinstance(value, np.generic):
            return {"type": type(value).__name__, "value": json_number(value.item())}
        return self._container(value, path, depth)

    def _container(self, value: Any, path: str, depth: int) -> Any:
        items = _items(value)
        if items is not None:
            if type(value) is not dict:
                self._note_container(value, path)
            if depth >= _MAX_DEPTH:
                self.details[path] = {"nested_deeper_than": _MAX_DEPTH}
                return None
            return {str(k): self._named(k, v, f"{path}.{k}", depth + 1) for k, v in items}
        if isinstance(value, (tuple, list, set, frozenset)):
            self._note_container(value, path)
            return self._nested(value, path, depth)
        distributed = _distributed(value, self, path)
        if distributed is None:
            self.details[path] = {"type": f"{type(value).__module__}.{type(value).__qualname__}"}
        return distributed


def tensor_entry(tensor: Tensor) -> TensorEntry:
    """Describe a tensor without its values."""
    dtype = tensor.dtype
    dtype_name = _DTYPES.get(dtype)
    if dtype_name is None:
        dtype_name = _DTYPES[dtype] = str(dtype)
    kind = type(tensor)
    entry = TensorEntry("torch.Tensor", dtype_name, _sizes(tensor), None, None, None, None, tensor.requires_grad)
    if kind is not Tensor and kind is not torch.nn.Parameter:
        _describe_subclass(tensor, entry)
    elif tensor.layout is torch.strided and not tensor.is_contiguous():
        if tensor.dim() == 4 and tensor.is_contiguous(memory_format=torch.channels_last):
            entry.memory_format = "channels_last"
        elif tensor.dim() == 5 and tensor.is_contiguous(memory_format=torch.channels_last_3d):
            entry.memory_format = "channels_last_3d"
        else:
            entry.stride = list(tensor.stride())
    return entry


def _sizes(tensor: Tensor) -> list[int]:
    # A nested tensor has no shape to iterate over; its outer length is all that can be told.
    return [tensor.size(0)] if tensor.is_nested else list(tensor.shape)


def _describe_subclass(tensor: Tensor, entry: TensorEntry) -> None:
    for base in type(tensor).__mro__:
        if base.__name__ in _TYPES:
            entry.type = _TYPES[base.__name__]
            break
    if entry.type.endswith("DTensor"):
        entry.device_mesh = tensor.device_mesh.mesh.tolist()  # type: ignore[attr-defined]
        entry.placements = [_placement(placement) for placement in tensor.placements]  # type: ignore[attr-defined]


def _placement(placement: Any) -> dict[str, Any]:
    kind = type(placement).__name__.lstrip("_")
    fields = {name: getattr(placement, name) for name in ("dim", "reduce_op") if hasattr(placement, name)}
    return {kind: {key: value for key, value in fields.items() if isinstance(value, (int, str))}}


def _items(value: Any) -> list[tuple[Any, Any]] | None:
    # The output classes of transformers are dataclasses and mappings; as mappings they leave out what is None.
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [(field.name, getattr(value, field.name)) for field in dataclasses.fields(value)]
    if isinstance(value, Mapping):
        return list(value.items())
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return list(zip(value._fields, value, strict=True))
    return None


_SCALARS = frozenset({int, float, bool, str})

_FORMATS = {
    torch.contiguous_format: "contiguous_format",
    torch.channels_last: "channels_last",
    torch.channels_last_3d: "channels_last_3d",
    torch.preserve_format: "preserve_format",
}


def _slice(value: slice) -> dict[str, Any]:
    return {"type": "slice", "value": [_as_int(end) for end in (value.start, value.stop, value.step)]}


def _as_int(value: Any) -> int | None:
    try:
        return None if value is None else int(value)
    except (TypeError, ValueError, RuntimeError):
        return None


_CONVERSIONS: tuple[tuple[Any, Callable[[Any], Any]], ...] = (
    (slice, _slice),
    (type(...), lambda _: {"type": "ellipsis", "value": "..."}),
    (torch.Size, lambda value: {"type": "torch.Size", "value": list(value)}),
    (torch.memory_format, lambda value: {"type": "torch.memory_format", "format": _FORMATS[value]}),
    (enum.Enum, lambda value: {"type": type(value).__name__, "value": value.name}),
    (bool, lambda value: {"type": "bool", "value": bool(value)}),
    (int, lambda value: {"type": "int", "value": int(value)}),
    (str, lambda value: {"type": "str", "value": str(value)}),
)


def _device(value: Any) -> Any:
    if isinstance(value, torch.device):
        return f"{value.type}:{value.index}"
    return value if isinstance(value, (str, int)) else str(value)


def _array(value: np.ndarray[Any, Any]) -> dict[str, Any]:
    entry = {"type": "numpy.ndarray", "dtype": str(value.dtype), "shape": list(value.shape)}
    numbers: tuple[Any, ...] = (None,) * 4
    if value.size and value.dtype.kind in "biuf":
        flat = value.astype(np.float64)
        numbers = (value.max().item(), value.min().item(), flat.mean().item(), math.sqrt((flat * flat).sum().item()))
    return entry | {
        key: json_number(number) for key, number in zip(("Max", "Min", "Mean", "Norm"), numbers, strict=True)
    }


def _distributed(value: Any, elements: Elements, path: str) -> dict[str, Any] | None:
    dist = sys.modules.get("torch.distributed")
    if dist is None or not dist.is_available():
        return None
    if isinstance(value, dist.ProcessGroup):
        ranks = dist.get_process_group_ranks(value)
        return {"type": "torch.ProcessGroup", "group_ranks": ranks, "group_id": group_id(ranks)}
    if isinstance(value, (dist.ReduceOp, dist.ReduceOp.RedOpType)):
        return {"type": "torch.distributed.ReduceOp", "value": str(value)}
    if isinstance(value, dist.P2POp):
        return {
            "class_type": "torch.distributed.P2POp",
            "tensor": elements.element(value.tensor, f"{path}.tensor"),
            "op": value.op.__name__,
            "peer": value.peer,
            "tag": value.tag,
            "group_id": group_id(dist.get_process_group_ranks(value.group)) if value.group else None,
        }
    return None


def group_id(ranks: list[int]) -> str:
    """Return the checksum of a process group's ranks, as version 26 writes it."""
    return f"{zlib.crc32(str(ranks).encode()):08x}"
