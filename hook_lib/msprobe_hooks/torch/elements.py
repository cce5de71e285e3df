"""Elements of PyTorch's values in a record."""

from __future__ import annotations

import sys
import zlib
from typing import Any

import torch
from torch import Tensor

from msprobe_hooks.dump.memory_layouts import span
from msprobe_hooks.recording.elements import NOT_OWN, Elements, TensorEntry


class _Names(dict[torch.dtype, str]):
    """The spelling of each dtype, put together once."""

    def __missing__(self, dtype: torch.dtype) -> str:
        name = self[dtype] = str(dtype)
        return name


_NAMES = _Names()
_STRIDED = torch.strided
_PLAIN = frozenset({Tensor, torch.nn.Parameter})

_TYPES = {
    "DTensor": "torch.distributed.tensor.DTensor",
    "FakeTensor": "torch._subclasses.fake_tensor.FakeTensor",
    "AsyncCollectiveTensor": "torch.distributed._functional_collectives.AsyncCollectiveTensor",
    "NestedTensor": "torch.nested._internal.nested_tensor.NestedTensor",
}


class TorchElements(Elements):
    """Builds the elements of one record."""

    __slots__ = ()

    tensor_class = Tensor
    suffix = ".pt"

    def describe(self, tensor: Tensor) -> TensorEntry:
        """Return a tensor's entry without its values."""
        entry, storage = tensor_entry(tensor)
        self._storages.append(storage)
        return entry

    def named(self, key: Any, value: Any) -> Any:
        """Return the spelling of dtypes and devices that are named arguments."""
        if key in ("dtype", "output_dtype") and isinstance(value, torch.dtype):
            return {"type": "torch.dtype", "value": str(value)}
        if key == "device" and value is not None:
            return {"type": "torch.device", "value": _device(value)}
        return NOT_OWN

    def own(self, value: Any, path: str) -> Any:
        """Return the spelling of sizes, formats, dtypes, devices, layouts and what communicates."""
        if isinstance(value, torch.Size):
            return {"type": "torch.Size", "value": list(value)}
        if isinstance(value, torch.memory_format):
            return {"type": "torch.memory_format", "format": _FORMATS[value]}
        if isinstance(value, (torch.dtype, torch.device)):
            self.details[path] = {"type": f"torch.{type(value).__name__}", "value": str(value)}
            return {}
        if isinstance(value, torch.layout):
            self.details[path] = {"type": "torch.layout", "value": str(value)}
            return None
        return _distributed(value, self, path)


def tensor_entry(tensor: Tensor) -> tuple[TensorEntry, int]:
    """Describe a tensor without its values; what its storage is known by comes second, 0 where that is unknown."""
    # A nested tensor has no shape to iterate over; its outer length is all that is known.
    sizes = [tensor.size(0)] if tensor.is_nested else list(tensor.shape)
    entry = TensorEntry("torch.Tensor", _NAMES[tensor.dtype], sizes, None, None, None, None, tensor.requires_grad)
    if type(tensor) not in _PLAIN:
        _describe_subclass(tensor, entry)
    elif tensor.layout is _STRIDED:
        return entry, _describe_memory(tensor, entry)
    elif tensor.layout is torch.sparse_coo and tensor.dim() == tensor.sparse_dim() > 0:
        entry.nnz, entry.is_coalesced = tensor._nnz(), tensor.is_coalesced()
    return entry, 0


def _describe_memory(tensor: Tensor, entry: TensorEntry) -> int:
    if tensor.is_conj():
        entry.is_conj = True
    if tensor.is_neg():
        entry.is_neg = True
    is_contiguous = tensor.is_contiguous()
    if not is_contiguous:
        if tensor.dim() == 4 and tensor.is_contiguous(memory_format=torch.channels_last):
            entry.memory_format = "channels_last"
        elif tensor.dim() == 5 and tensor.is_contiguous(memory_format=torch.channels_last_3d):
            entry.memory_format = "channels_last_3d"
        else:
            entry.stride = list(tensor.stride())
    try:
        storage = tensor.untyped_storage()
        size = storage.nbytes()
    except (NotImplementedError, RuntimeError):
        # What a function transform puts around a tensor has no memory of its own.
        return 0
    if not (is_contiguous and size == tensor.nbytes):
        _describe_view(tensor, size // tensor.element_size(), entry)
    return int(storage._cdata)


def _describe_view(tensor: Tensor, storage_size: int, entry: TensorEntry) -> None:
    if tensor.numel() == 0:
        return
    offset = int(tensor.storage_offset())
    if offset:
        entry.storage_offset = offset
    if storage_size > span(tensor.shape, tensor.stride()):
        entry.storage_size = storage_size


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


_FORMATS = {
    torch.contiguous_format: "contiguous_format",
    torch.channels_last: "channels_last",
    torch.channels_last_3d: "channels_last_3d",
    torch.preserve_format: "preserve_format",
}


def _device(value: Any) -> Any:
    if isinstance(value, torch.device):
        return f"{value.type}:{value.index}"
    return value if isinstance(value, (str, int)) else str(value)


def _distributed(value: Any, elements: Elements, path: str) -> Any:
    dist = sys.modules.get("torch.distributed")
    if dist is None or not dist.is_available():
        return NOT_OWN
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
    return NOT_OWN


def group_id(ranks: list[int]) -> str:
    """Return the checksum of a process group's ranks, as version 26 writes it."""
    return f"{zlib.crc32(str(ranks).encode()):08x}"
