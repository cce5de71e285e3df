"""The weights of torch modules, state dicts and streams of tensors, one at a time, with digests made on the device."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from msprobe_hooks.errors import ConfigError
from msprobe_hooks.extensions.checkpoint.weights_file import Digest, WrittenParameter, digest, is_stack
from msprobe_hooks.torch.statistics import Deferred, fetch, measure
from msprobe_hooks.torch.tensor_memory import as_bytes

# 2 MiB of float64, which a core's cache holds; devices take longer to begin than to multiply.
_BLOCK, _DEVICE_BLOCK = 1 << 18, 1 << 25


class TorchElements:
    """The elements of a matrix [rows, columns]."""

    def __init__(self, matrix: Tensor) -> None:
        self._matrix = matrix
        self._digit = torch.int16 if matrix.element_size() > 1 else torch.int8
        self.rows, self.columns = matrix.shape
        self.digits = max(matrix.element_size() // 2, 1)
        self.block = _BLOCK if matrix.is_cpu else _DEVICE_BLOCK

    def read(self, start: int, stop: int) -> Tensor:
        """Return the digits of some rows in float64."""
        return self._matrix[start:stop].contiguous().view(self._digit).double()

    def place(self, numbers: NDArray[np.float64]) -> Tensor:
        """Return numbers where the matrix is."""
        return torch.from_numpy(numbers).to(self._matrix.device)

    def fetch(self, arrays: Sequence[Tensor]) -> NDArray[np.int64]:
        """Return numbers on the host."""
        numbers: NDArray[np.int64] = torch.cat(list(arrays)).long().cpu().numpy()
        return numbers


class RoundedElements(TorchElements):
    """The elements of a matrix after they are rounded to bfloat16."""

    def __init__(self, matrix: Tensor) -> None:
        super().__init__(matrix)
        self._digit, self.digits = torch.int16, 1

    def read(self, start: int, stop: int) -> Tensor:
        """Return the digits of some rows in float64."""
        return self._matrix[start:stop].to(torch.bfloat16).contiguous().view(torch.int16).double()


def matrices(tensor: Tensor) -> Iterator[Tensor]:
    """Yield the matrices of a tensor: three axes are several, fewer a column, more are flattened behind the first."""
    if is_stack(tensor.shape):
        yield from tensor
    elif tensor.dim() < 2:
        yield tensor.reshape(-1, 1)
    else:
        yield tensor.flatten(1)


@torch.no_grad()
def tensor_digests(tensor: Tensor) -> list[Digest]:
    """Compute the digests of each matrix of a plain tensor, on its device where that has float64."""
    return [digest(TorchElements(matrix)) for matrix in matrices(_readable(tensor))]


@torch.no_grad()
def rounded_digests(tensor: Tensor) -> list[Digest]:
    """Compute the digests that the tensor has when it is rounded to bfloat16."""
    return [digest(RoundedElements(matrix)) for matrix in matrices(_readable(tensor))]


def _readable(tensor: Tensor) -> Tensor:
    tensor = tensor.detach().resolve_conj().resolve_neg()
    # These multiply in float64; NPUs do not.
    return tensor if tensor.device.type in ("cpu", "cuda", "xpu") else tensor.cpu()


# Those of which a trainer keeps a copy that the other side has in bfloat16.
_WIDER = frozenset({torch.float32, torch.float64})
_SHARDED = {0: "rows", 1: "columns"}
_WANTED = "a module, a list of modules, a state dict, or pairs of names and tensors"


class TorchWeight:
    """One tensor with its name; ``written`` says all of it that needs no values."""

    def __init__(
        self, name: str, tensor: Tensor, chunk: int, *, is_buffer: bool, place: Mapping[str, Any] | None = None
    ) -> None:
        placed = _placed(name, tensor) if place is None else {"local": tensor, **place}
        self._local = placed.pop("local")
        if self._local.is_meta or self._local.layout is not torch.strided or self._local.is_quantized:
            raise ConfigError("weights", name, "a dense tensor that has values")
        self.written = WrittenParameter(
            name,
            tuple(self._local.shape),
            str(self._local.dtype).removeprefix("torch."),
            sharded=_sharded(tensor),
            chunk=chunk,
            is_buffer=is_buffer,
            **placed,
        )

    def digests(self) -> list[Digest]:
        """Compute the digests of its matrices."""
        return tensor_digests(self._local)

    def rounded(self) -> list[Digest]:
        """Compute the digests that it has in bfloat16, none where it is no wider."""
        return rounded_digests(self._local) if self._local.dtype in _WIDER else []

    def statistics(self) -> dict[str, float | None]:
        """Measure max, min, mean and norm, of what of it this rank holds."""
        with torch.no_grad():
            measured = measure(self._local.detach())
            if isinstance(measured, Deferred):
                fetch([measured])
        numbers = {name: getattr(measured, name) for name in ("max", "min", "mean", "norm")}
        return {name: None if value is None else float(value) for name, value in numbers.items()}

    def bits(self) -> np.ndarray[Any, Any]:
        """Return its elements on the host, as unsigned integers of their bits."""
        return as_bytes(self._local.resolve_conj().resolve_neg().cpu().contiguous())


def torch_weights(weights: Any) -> Iterator[TorchWeight | str]:
    """Yield each parameter and persistent buffer, or the name of what is no tensor. Raises ConfigError."""
    chunks = weights if isinstance(weights, (list, tuple, nn.ModuleList)) else ()
    if chunks and all(isinstance(candidate, nn.Module) for candidate in chunks):
        for number, chunk in enumerate(chunks):
            yield from _of_module(chunk, number)
    elif isinstance(weights, nn.Module):
        yield from _of_module(weights, 0)
    elif isinstance(weights, (Mapping, Iterable)):
        for pair in weights.items() if isinstance(weights, Mapping) else weights:
            if not isinstance(pair, (tuple, list)) or len(pair) != 2 or not isinstance(pair[0], str):
                raise ConfigError("weights", pair, _WANTED)
            name, value = pair
            if isinstance(value, Mapping):
                raise ConfigError("weights", name, f"a tensor; it holds a mapping: pass that, as weights[{name!r}]")
            yield TorchWeight(name, value, 0, is_buffer=False) if isinstance(value, Tensor) else name
    else:
        raise ConfigError("weights", weights, _WANTED)


def _of_module(module: nn.Module, chunk: int) -> Iterator[TorchWeight]:
    flat: set[int] = set()
    for prefix, owner in module.named_modules():
        handle = getattr(owner, "_handle", None)
        if hasattr(owner, "_fsdp_wrapped_module") and handle is not None:
            try:
                yield from _of_flat(prefix, handle, chunk)
                views = (*(handle.flat_param._params or ()), *(handle.flat_param._shared_params or ()))
            except AttributeError as error:
                instead = f"a state dict: FSDP1 of this torch is not known ({error})"
                raise ConfigError("weights", type(module).__name__, instead) from None
            flat.update(map(id, (handle.flat_param, *views)))
    for name, parameter in module.named_parameters(remove_duplicate=False):
        if id(parameter) not in flat:
            yield TorchWeight(name, _by_expert(module, name, parameter), chunk, is_buffer=False)
    for prefix, owner in module.named_modules():
        for name, buffer in owner.named_buffers(recurse=False):
            if name not in owner._non_persistent_buffers_set:
                yield TorchWeight(f"{prefix}.{name}".lstrip("."), buffer, chunk, is_buffer=True)


def _by_expert(module: nn.Module, name: str, parameter: Tensor) -> Tensor:
    """Return a matrix of all of Megatron's grouped experts [out, in] of each (megatron.core, GroupedMLP.forward)."""
    owner, _, last = name.rpartition(".")
    if last not in ("weight1", "weight2") or parameter.dim() != 2:
        return parameter
    count = getattr(module.get_submodule(owner), "num_local_experts", None)
    if not isinstance(count, int) or count < 1:
        return parameter
    shape = (count, len(parameter), -1) if last == "weight1" else (count, -1, parameter.shape[1])
    return parameter.detach().view(shape).transpose(1, 2)


def _of_flat(prefix: str, handle: Any, chunk: int) -> Iterator[TorchWeight]:
    """Yield what this rank holds of each parameter in a flat one of FSDP1, as rectangles that know their places.

    A parameter that is tied to another is yielded under the name that FSDP keeps it by.
    """
    flat = handle.flat_param
    # Until the first forward pass the parameter is its shard.
    local = getattr(flat, "_local_shard", flat).detach() if handle.uses_sharded_strategy else flat.detach()
    for name, shape, part in zip(flat._fqns, flat._shapes, flat._shard_param_infos, strict=True):
        if not part.in_shard:
            continue
        values = local[part.offset_in_shard : part.offset_in_shard + part.numel_in_shard]
        whole = tuple(shape)
        if len(values) == math.prod(whole):
            place = {"whole_shape": whole, "offset": (0,) * len(whole)}
            yield TorchWeight(f"{prefix}.{name}".lstrip("."), values.view(whole), chunk, is_buffer=False, place=place)
            continue
        for rectangle, offset in _rectangles(values, part.intra_param_start_idx, math.prod(whole[1:])):
            place = {"whole_shape": whole, "offset": offset[: max(len(whole), 1)]}
            shard = rectangle if len(whole) > 1 else rectangle.reshape(-1)
            yield TorchWeight(f"{prefix}.{name}".lstrip("."), shard, chunk, is_buffer=False, place=place)


def _rectangles(values: Tensor, first: int, width: int) -> Iterator[tuple[Tensor, tuple[int, int]]]:
    """Yield elements of a flat matrix from the number ``first`` on: the end of a row, whole rows, the start of one."""
    start = 0
    while start < len(values):
        row, column = divmod(first + start, width)
        left = len(values) - start
        count = min(width - column, left) if column or left < width else left // width * width
        yield values[start : start + count].view(-1, min(count, width)), (row, column)
        start += count


def _placed(name: str, tensor: Tensor) -> dict[str, Any]:
    """Return what of a tensor this rank holds, and where it lies in the whole, if the tensor knows."""
    if not hasattr(tensor, "placements"):
        return {"local": tensor}
    from torch.distributed.tensor import DTensor
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    assert isinstance(tensor, DTensor)
    if any(placement.is_partial() for placement in tensor.placements):
        raise ConfigError("weights", name, "a DTensor that is sharded or replicated, not partial")
    shape, offset = compute_local_shape_and_global_offset(tensor.shape, tensor.device_mesh, tensor.placements)
    local = tensor.to_local()
    if hasattr(local, "wait"):
        local = local.wait()
    return {"local": local.reshape(shape), "whole_shape": tuple(tensor.shape), "offset": tuple(offset)}


def _sharded(tensor: Tensor) -> str:
    """Return how Megatron says that tensor parallel ranks share a parameter."""
    is_shared = getattr(tensor, "tensor_model_parallel", None)
    if not isinstance(is_shared, bool):
        return ""
    return _SHARDED.get(getattr(tensor, "partition_dim", -1), "") if is_shared else "none"
