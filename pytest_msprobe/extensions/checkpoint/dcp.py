"""Folders of torch.distributed.checkpoint: ``.metadata`` says in which file which part of which tensor lies."""

from __future__ import annotations

import io
import math
import pickle
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import torch

from msprobe_hooks.dump.values import TOO_LARGE
from msprobe_hooks.regular_files import open_regular
from msprobe_hooks.torch.torch_files import load_torch_file
from pytest_msprobe.errors import CheckpointError
from pytest_msprobe.extensions.checkpoint.checkpoint_files import Checkpoint, Parameter, dtype_name

METADATA = ".metadata"

# What torch itself writes into .metadata: data classes, what its own reader takes layouts by, and where it was written.
_KNOWN = {
    *(
        ("torch.distributed.checkpoint.metadata", name)
        for name in (
            *("Metadata", "TensorStorageMetadata", "BytesStorageMetadata", "ChunkStorageMetadata", "TensorProperties"),
            *("MetadataIndex", "StorageMeta", "_MEM_FORMAT_ENCODING"),
        )
    ),
    ("torch.distributed.checkpoint.filesystem", "_StorageInfo"),
    ("torch.serialization", "_get_layout"),
}
_DTYPES = {name for name in vars(torch) if isinstance(getattr(torch, name), torch.dtype)}
_PATHS = ("pathlib", "pathlib._local")
# More than any tensor has.
_MOST_DIMENSIONS = 100


class _Record:
    """The fields of a data class; what it was called with is forgotten."""

    def __new__(cls, *_: object) -> Any:
        return object.__new__(cls)

    def __setstate__(self, state: Any) -> None:
        # Properties of tensors have a state of their own: their dtype, and what torch calls deprecated.
        self.__dict__.update(state if isinstance(state, dict) else {"dtype": state[0]})


class _MetadataReader(pickle.Unpickler):
    """Makes records that stand for torch's data classes, and of what others use dtypes and tuples alone.

    A pickle may set attributes of each class that it can name: those of torch or pathlib would stay changed for the
    whole process. torch's unpickler of weights reads protocol 2 alone, and ``.metadata`` is written in a later one.
    """

    def __init__(self, file: BinaryIO) -> None:
        super().__init__(file)
        self._classes: dict[tuple[str, str], type[_Record]] = {}

    def find_class(self, module: str, name: str) -> Any:
        """Return what replaces an allowed class. Raises UnpicklingError for any other."""
        if module == "torch" and name in _DTYPES:
            return getattr(torch, name)
        if (module, name) == ("torch", "Size"):
            return tuple
        if (module, name) not in _KNOWN and not (module in _PATHS and name.endswith("Path")):
            raise pickle.UnpicklingError(f"holds objects of class {module}.{name}, which torch does not write")
        return self._classes.setdefault((module, name), type(name, (_Record,), {}))


def read_dcp(path: Path) -> Checkpoint:
    """Read the tensors of the folder of a ``.metadata`` file. Raises CheckpointError, also where a part is missing."""
    try:
        with open_regular(path) as file:
            metadata = _MetadataReader(file).load()
        places: dict[str, dict[tuple[int, ...], Any]] = {}
        for index, place in metadata.storage_data.items():
            places.setdefault(_name(index.fqn), {})[_sizes(getattr(index, "offset", None) or ())] = place
        parameters = {
            _name(name): Parameter(
                _sizes(entry.size),
                dtype_name(_dtype(entry)),
                partial(_load, path, name, entry, places.get(name, {})),
            )
            for name, entry in metadata.state_dict_metadata.items()
            if hasattr(entry, "chunks")
        }
        files = {_name(place.relative_path) for place in metadata.storage_data.values()}
    except Exception as error:
        # Bytes that are no pickle make Python's reader raise almost anything.
        raise CheckpointError(f"not the metadata of a checkpoint: {error}", file=path) from None
    for name in sorted(files):
        if Path(name).name != name:
            raise CheckpointError(f"file {name!r} leads out of the folder", file=path)
        if not (path.parent / name).is_file():
            raise CheckpointError("part of the checkpoint is missing", file=path.parent / name, remedy="copy it")
    return Checkpoint("torch.distributed.checkpoint", parameters)


def _sizes(stored: Any) -> tuple[int, ...]:
    """Return sizes or offsets, which become keys: to hash tuples that share their entries may take for ever."""
    sizes = tuple(stored) if isinstance(stored, (tuple, list)) else ()
    if not isinstance(stored, (tuple, list)) or len(sizes) > _MOST_DIMENSIONS or {*map(type, sizes)} - {int}:
        raise ValueError("sizes and offsets of tensors are not whole numbers")
    if any(not 0 <= size < TOO_LARGE for size in sizes):
        raise ValueError("sizes and offsets of tensors are negative or too large")
    return sizes


def _name(stored: Any) -> str:
    if not isinstance(stored, str):
        raise ValueError(f"a {type(stored).__name__} in place of a name")
    return stored


def _dtype(entry: Any) -> torch.dtype:
    dtype = entry.properties.dtype
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"a {type(dtype).__name__} in place of a dtype")
    return dtype


def _load(path: Path, name: str, entry: Any, places: Mapping[tuple[int, ...], Any]) -> torch.Tensor:
    """Assemble a tensor of its parts, which must fill it."""
    try:
        chunks = {_sizes(chunk.offsets): _sizes(chunk.sizes) for chunk in entry.chunks}
        size = _sizes(entry.size)
        actual, expected = sum(map(math.prod, chunks.values())), math.prod(size)
        if actual != expected:
            raise ValueError(f"its parts hold {actual} of {expected} elements")
        whole = torch.empty(size, dtype=_dtype(entry))
        for offsets, sizes in chunks.items():
            place = places.get(offsets)
            if place is None:
                raise ValueError(f"no file has its part at {list(offsets)}")
            if getattr(place, "transform_descriptors", None):
                raise ValueError("it is compressed, which is not supported")
            with open_regular(path.parent / place.relative_path) as file:
                file.seek(place.offset)
                part = load_torch_file(io.BytesIO(file.read(place.length)))
            where = tuple(slice(first, first + count) for first, count in zip(offsets, sizes, strict=True))
            if part.dtype != whole.dtype or whole[where].shape != sizes:
                raise ValueError(f"its part at {list(offsets)} does not fit a tensor of this shape and dtype")
            whole[where] = part.reshape(sizes)
    except Exception as error:
        raise CheckpointError(f"{name} cannot be read: {error}", file=path) from None
    return whole
