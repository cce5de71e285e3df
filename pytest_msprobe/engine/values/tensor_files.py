"""Real data: the tensors that a recording stored next to ``dump.json``."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import torch

from msprobe_hooks.dump.containers import find_tensor, read_elements, split_name
from msprobe_hooks.dump.npy import find_file
from msprobe_hooks.dump.schema import TensorElement
from msprobe_hooks.errors import DumpError
from msprobe_hooks.regular_files import open_regular
from msprobe_hooks.torch.torch_files import RefusedFileError, load_torch_file
from msprobe_standards.tensor_layouts import is_plain
from pytest_msprobe.engine.values.dtypes import dtype_named
from pytest_msprobe.engine.values.system_memory import require_memory
from pytest_msprobe.results.outcomes import Skip, SkipReason

# Smaller files are read sooner than they are mapped.
_WORTH_MAPPING = 2**21


def load_tensor(
    element: TensorElement, folder: Path, *, mapped: bool = False, keeps_shape: bool = True
) -> torch.Tensor:
    """Load the recorded values of a tensor as a CPU tensor, of a distributed one the part that the rank held.

    ``.pt`` files are read with ``weights_only``, ``.npy`` files without pickle, of a container this tensor's bytes
    alone; all of them only below ``folder``. With ``mapped`` the values of a large file stay in it, which must not
    change while the tensor lives; writing to it leaves the file as it is. Without ``keeps_shape`` a file may hold the
    elements in another shape. Raises Skip where the file is missing; DumpError where its name leaves the folder, its
    content is no tensor of one shape, or shape and dtype are not the recorded ones.
    """
    name = element.data_name or ""
    contained = split_name(name)
    file = name if contained is None else contained[0]
    path = find_file(folder, file)
    if path is None:
        raise Skip(SkipReason.MISSING_TENSOR_FILE, str(folder / file))
    dtype = dtype_named(element.dtype)
    tensor = _read(path, mapped) if contained is None else read_contained(path, contained[1], mapped=mapped)
    is_unknown_to_numpy = dtype is torch.bfloat16 or (dtype.is_floating_point and dtype.itemsize == 1)
    if is_unknown_to_numpy and path.suffix == ".npy" and tensor.dtype is torch.float32:
        # Recorders of MindSpore widen it, without loss.
        tensor = tensor.to(dtype)
    if not keeps_shape and tensor.numel() == math.prod(element.shape):
        tensor = tensor.reshape(element.shape)
    if not (tuple(tensor.shape) == element.shape or element.type.endswith("DTensor")) or tensor.dtype != dtype:
        raise DumpError(
            f"{folder / name}: holds {tensor.dtype} {tuple(tensor.shape)}, but {element.dtype} {element.shape} was "
            "recorded; the file belongs to another dump"
        )
    return tensor.contiguous() if is_plain(tensor) else tensor


def read_contained(path: Path, name: str, *, mapped: bool = False) -> torch.Tensor:
    """Load a tensor of a container, ``mapped`` where it is not compressed. Raises DumpError."""
    try:
        tensor = find_tensor(path, name)
        require_memory(path, tensor)
        elements = torch.from_numpy(read_elements(path, tensor, mapped=mapped))
    except OSError as error:
        raise DumpError(f"{path}: cannot be read, copy or record it again: {error.strerror}") from None
    dtype = dtype_named(tensor.dtype)
    if elements.data_ptr() % dtype.itemsize:
        # Others may lay tensors out in any order.
        elements = elements.clone()
    try:
        # torch views no bytes as nothing else.
        return elements.view(dtype).view(tensor.shape) if elements.numel() else torch.empty(tensor.shape, dtype=dtype)
    except RuntimeError:
        # Empty ones may have sizes whose product is too large.
        raise DumpError(f"{path}: {name!r}: torch cannot hold {dtype} {tensor.shape}; record it again") from None


def _read(path: Path, mapped: bool) -> torch.Tensor:
    try:
        mapped = mapped and path.stat().st_size >= _WORTH_MAPPING
        if path.suffix == ".npy":
            if mapped:
                return torch.from_numpy(np.lib.format.open_memmap(path, mode="c"))
            with open_regular(path) as file:
                return torch.from_numpy(np.load(file, allow_pickle=False))
        loaded = load_torch_file(path, mapped=mapped)
    except RefusedFileError as error:
        raise DumpError(f"{path}: {error}") from None
    except Exception as error:
        # Bytes that are no tensor make torch's and numpy's readers raise almost anything.
        first_line = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise DumpError(f"{path}: not a readable tensor file, copy or record it again: {first_line}") from None
    if not isinstance(loaded, torch.Tensor) or loaded.is_nested:
        kind = "nested tensor" if isinstance(loaded, torch.Tensor) else type(loaded).__name__
        raise DumpError(f"{path}: holds a {kind}, not a tensor of one shape")
    return loaded.detach()
