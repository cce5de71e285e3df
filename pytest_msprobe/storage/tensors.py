"""Tensors in one safetensors file.

That format knows neither strides and lazy bits nor all of torch's dtypes: those are next to the file, and what some
version of safetensors may not know is stored as its bytes. The package is optional, so it is imported where a file is
opened.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from msprobe_hooks.dump.memory_layouts import span
from msprobe_hooks.regular_files import require_regular
from msprobe_standards.tensor_layouts import is_plain
from pytest_msprobe.engine.values.dtypes import dtype_named
from pytest_msprobe.engine.values.strides import flipped, lay_out, resolved
from pytest_msprobe.engine.values.system_memory import free_bytes
from pytest_msprobe.storage.limits import StoredTensor, TensorFileError

_STORED_AS_THEY_ARE = frozenset(
    {
        torch.float64, torch.float32, torch.float16, torch.bfloat16,
        torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool,
    }
)  # fmt: skip

_INSTALL = "pip install 'pytest-msprobe[cases]'"

#: How much more memory than values the strides of a stored tensor may reach over without asking how much is free.
_ALWAYS_FREE = 64 * 2**20


def describe(tensor: torch.Tensor) -> StoredTensor:
    """Return what the file does not say of a tensor. Raises TensorFileError for more than a block of elements."""
    if not is_plain(tensor):
        raise TensorFileError("a sparse, nested or quantized tensor is not stored")
    bits = tensor.is_conj(), tensor.is_neg()
    return StoredTensor(str(tensor.dtype), tuple(tensor.shape), tuple(tensor.stride()), *bits)


def write_tensors(path: Path, tensors: Mapping[str, torch.Tensor], metadata: dict[str, str] | None = None) -> None:
    """Write CPU tensors. Raises OSError or TensorFileError where the disk does not take them."""
    try:
        from safetensors import SafetensorError
        from safetensors.torch import save_file
    except ImportError:
        raise TensorFileError("writing it needs safetensors", remedy=_INSTALL) from None
    try:
        save_file({name: _storable(tensor.detach()) for name, tensor in tensors.items()}, path, metadata)
    except SafetensorError as error:
        raise TensorFileError(str(error)) from None


def _storable(tensor: torch.Tensor) -> torch.Tensor:
    plain = resolved(tensor).clone(memory_format=torch.contiguous_format)
    return plain if plain.dtype in _STORED_AS_THEY_ARE else plain.view(-1).view(torch.uint8)


def read_metadata(path: Path) -> dict[str, str]:
    """Return a file's metadata. Raises OSError, or TensorFileError where it is not a safetensors file."""
    with _opened(path) as file:
        metadata: dict[str, str] | None = file.metadata()
    return metadata or {}


def read_tensor(path: Path, name: str, stored: StoredTensor) -> torch.Tensor:
    """Read one tensor as it was: dtype, shape, strides and lazy bits.

    Raises TensorFileError where the file is missing, is damaged or holds something else, Skip where its dtype is
    unknown.
    """
    dtype = dtype_named(stored.dtype)
    try:
        require_regular(path)
        with _opened(path) as file:
            # The tensor lies in the mapped file, which may be gone once it is closed.
            tensor: torch.Tensor = file.get_tensor(name).clone()
    except OSError as error:
        raise TensorFileError(f"{path}: tensor {name!r} cannot be read: {error}") from None
    except TensorFileError as error:
        raise TensorFileError(f"{path}: tensor {name!r} cannot be read: {error}", remedy=error.remedy) from None
    as_bytes = dtype not in _STORED_AS_THEY_ARE
    try:
        values = tensor.view(dtype).view(stored.shape) if as_bytes else tensor
    except RuntimeError:
        values = tensor
    if values.dtype is not dtype or tuple(values.shape) != stored.shape:
        raise TensorFileError(
            f"{path}: tensor {name!r} is {tensor.dtype} {tuple(tensor.shape)}, but was saved as {stored.dtype} "
            f"{stored.shape}"
        )
    return _laid_out(path, name, values, stored)


def _laid_out(path: Path, name: str, values: torch.Tensor, stored: StoredTensor) -> torch.Tensor:
    if len(stored.stride) != len(stored.shape) or min(stored.stride, default=0) < 0:
        raise TensorFileError(f"{path}: tensor {name!r} of shape {stored.shape} cannot have strides {stored.stride}")
    reach = span(stored.shape, stored.stride) * values.element_size()
    if reach > max(_ALWAYS_FREE, values.nbytes) and reach > free_bytes() / 2:
        raise TensorFileError(
            f"{path}: the strides {stored.stride} of tensor {name!r} reach over {reach / 2**30:.1f} GiB, "
            "more than is free"
        )
    memory = resolved(flipped(values, conj=stored.is_conj, neg=stored.is_neg))
    memory = memory if memory.stride() == stored.stride else lay_out(memory, stored.stride)
    return flipped(memory, conj=stored.is_conj, neg=stored.is_neg)


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """Open a file. Raises OSError, or TensorFileError where it is not a safetensors file or none can be read."""
    try:
        from safetensors import SafetensorError, safe_open
    except ImportError:
        raise TensorFileError("reading it needs safetensors", remedy=_INSTALL) from None
    try:
        with safe_open(path, framework="pt") as file:
            yield file
    except SafetensorError as error:
        raise TensorFileError(str(error)) from None
