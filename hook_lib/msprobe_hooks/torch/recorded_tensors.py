"""Tensors that a recording wrote, read into a program of PyTorch: weights only, no pickle, below the dump's folder."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from msprobe_hooks.dump.tensor_files.containers import find_tensor, read_elements, split_name
from msprobe_hooks.dump.tensor_files.location import find_file
from msprobe_hooks.dump.tensor_files.npy import read_array
from msprobe_hooks.errors import DumpError
from msprobe_hooks.torch.torch_files import load_torch_file


def read_recorded(folder: Path, data_name: str, shape: tuple[int, ...]) -> Tensor:
    """Return the values of a recorded tensor, of a shape that is known, on the CPU.

    Raises DumpError where the file is missing, damaged or holds another shape.
    """
    contained = split_name(data_name)
    path = find_file(folder, data_name if contained is None else contained[0])
    if path is None:
        raise DumpError(f"{folder / data_name}: no such file; copy it, or record the step again")
    tensor = _whole(path) if contained is None else _contained(path, contained[1], shape)
    if tuple(tensor.shape) != shape:
        raise DumpError(f"{path}: holds the shape {tuple(tensor.shape)}, and {shape} is needed; record the step again")
    return tensor


def _whole(path: Path) -> Tensor:
    try:
        loaded = torch.from_numpy(np.array(read_array(path))) if path.suffix == ".npy" else load_torch_file(path)
    except Exception as error:
        # Bytes that are no tensor make torch's and numpy's readers raise almost anything.
        first_line = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise DumpError(f"{path}: not a readable tensor file, copy or record it again: {first_line}") from None
    if not isinstance(loaded, Tensor) or loaded.is_nested:
        raise DumpError(f"{path}: holds a {type(loaded).__name__}, not a tensor of one shape")
    return loaded.detach()


def _contained(path: Path, name: str, shape: tuple[int, ...]) -> Tensor:
    tensor = find_tensor(path, name)
    if tensor.shape != shape:
        # Before it is read: a compressed one may be of any size.
        raise DumpError(f"{path}: {name!r} has the shape {tensor.shape}, and {shape} is needed; record the step again")
    dtype = getattr(torch, tensor.dtype, None)
    if not isinstance(dtype, torch.dtype):
        raise DumpError(f"{path}: {name!r} is of {tensor.dtype}, which this torch does not have; record it in another")
    try:
        elements = torch.from_numpy(np.array(read_elements(path, tensor)))
    except OSError as error:
        raise DumpError(f"{path}: cannot be read, copy or record it again: {error.strerror}") from None
    return elements.view(dtype).view(shape) if elements.numel() else torch.empty(shape, dtype=dtype)
