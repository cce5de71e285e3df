"""Kinds of checkpoints by path, folders that ``write_weights`` wrote, and those of torch.distributed.checkpoint."""

from __future__ import annotations

import io
import math
import pickle
from collections.abc import Mapping
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from torch import Tensor

from msprobe_hooks.dump.values import TOO_LARGE
from msprobe_hooks.errors import DumpError
from msprobe_hooks.extensions.checkpoint import weights_file
from msprobe_hooks.extensions.checkpoint.weights_file import (
    Digest,
    Numbers,
    RankWeights,
    WrittenParameter,
    digests_of,
    is_stack,
    matrix_shape,
    rank_folders,
    read_digests,
    read_rank,
    step_folders,
)
from msprobe_hooks.json_decoding import JsonError, decode_json
from msprobe_hooks.messages import counted
from msprobe_hooks.regular_files import open_regular, read_regular
from msprobe_hooks.torch.torch_files import load_torch_file
from pytest_msprobe.errors import CheckpointError
from pytest_msprobe.extensions.checkpoint import checkpoint_files, megatron
from pytest_msprobe.extensions.checkpoint.checkpoint_files import (
    Checkpoint,
    MatrixDigest,
    Parameter,
    Share,
    SharedParameter,
    dtype_name,
)
from pytest_msprobe.extensions.model_names.fused_parts import ModelSizes, sizes_of_config

#: The file of a rank that represents its folder.
INDEX = weights_file.INDEX

_CONFIG = "config.json"
_INDEX = "*.safetensors.index.json"
_SUFFIXES = (".safetensors", ".pt", ".pth", ".bin", ".ckpt")

_METADATA = ".metadata"

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


def weights_index(folder: Path) -> Path | None:
    """Return the index that represents a folder of weights, None for another folder.

    Raises CheckpointError for one of several steps.
    """
    ranks = _written_ranks(folder)
    if ranks:
        return ranks[0] / INDEX
    steps = [(step, path) for step, path in step_folders(folder) if _written_ranks(path)]
    if len(steps) > 1:
        names = ", ".join(path.name for _, path in steps[:5])
        raise CheckpointError(f"holds {len(steps)} steps", file=folder, remedy=f"name one of {names}")
    return _written_ranks(steps[0][1])[0] / INDEX if steps else None


def read_weights(index: Path) -> Checkpoint:
    """Read the ranks of the step that a rank's index is of. Raises CheckpointError."""
    step = index.parents[1]
    shares: list[Share] = []
    sizes = ModelSizes()
    skipped = 0
    first: RankWeights | None = None
    for folder in rank_folders(step):
        try:
            rank = read_rank(folder)
            numbers = read_digests(folder)
            parameters = tuple(_shared(folder, shared, numbers) for shared in rank.parameters)
        except DumpError as error:
            raise CheckpointError(str(error)) from None
        first = first or rank
        skipped += len(rank.skipped)
        sizes = sizes.completed(sizes_of_config(rank.sizes))
        shares.append(Share(rank.rank, rank.layout, parameters, rank.first_layer, rank.first_expert))
    assert first is not None
    siblings = tuple(path for number, path in step_folders(step.parent) if path != step and _written_ranks(path))
    without = f", without {counted(skipped, 'entry', 'entries')} that are no tensors" if skipped else ""
    kind = f"weights of step {first.step}, {counted(len(shares), 'rank')}, {first.what}{without}"
    return Checkpoint(kind, shares=tuple(shares), sizes=sizes, siblings=siblings[::-1])


def _written_ranks(step: Path) -> list[Path]:
    return [path for path in rank_folders(step) if (path / INDEX).is_file()]


def _shared(folder: Path, written: WrittenParameter, numbers: Numbers) -> SharedParameter:
    own = digests_of(numbers, written.digest, written.shape)
    rounded = digests_of(numbers, written.rounded, written.shape) if written.rounded >= 0 else [None] * len(own)
    shape = written.shape[1:] if is_stack(written.shape) else written.shape
    matrices = tuple(
        Parameter(
            shape,
            written.dtype,
            partial(_load, folder, written, number),
            has_values=bool(written.file),
            stored=partial(_digest, *pair),
            optional="a buffer" if written.is_buffer else "",
        )
        for number, pair in enumerate(zip(own, rounded, strict=True))
    )
    return SharedParameter(
        written.name,
        matrices,
        written.shape,
        written.whole_shape,
        written.offset,
        written.sharded,
        written.chunk,
    )


def _digest(own: Digest, rounded: Digest | None) -> MatrixDigest:
    return MatrixDigest(own, rounded)


def _load(folder: Path, written: WrittenParameter, number: int) -> Tensor:
    """Read one matrix of a tensor that was written. Raises CheckpointError."""
    if not written.file:
        raise CheckpointError(
            f"{written.name} was written without values", file=folder, remedy='write_weights(..., what="tensors")'
        )
    parts = Path(written.file).parts
    if len(parts) != 2 or ".." in parts or Path(written.file).is_absolute():
        raise CheckpointError(f"file {written.file!r} leads out of the folder", file=folder / INDEX)
    path = folder / written.file
    try:
        values = np.load(path, mmap_mode="r", allow_pickle=False)
        count, rows, columns = matrix_shape(written.shape)
        dtype = _dtype(written.dtype)
        size = rows * columns * dtype.itemsize
        if values.dtype != np.uint8 or values.shape != (count * size,):
            raise ValueError("it has not the elements that the index says")
        matrix = np.array(values[number * size : (number + 1) * size])
    except (OSError, ValueError, EOFError) as error:
        raise CheckpointError(f"{written.name} cannot be read: {error}", file=path) from None
    shape = written.shape[1:] if is_stack(written.shape) else written.shape
    if not matrix.size:
        return torch.empty(shape, dtype=dtype)
    return torch.from_numpy(matrix).view(dtype).reshape(shape)


@cache
def _dtype(name: str) -> torch.dtype:
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"{name!r} is not a dtype of torch")
    return dtype


def main_file(folder: Path) -> Path:
    """Return the file that represents a folder's checkpoint. Raises CheckpointError where there is none."""
    if (folder / megatron.LATEST).is_file():
        folder = megatron.newest(folder)
    index = weights_index(folder)
    if index is not None:
        return index
    if (folder / _METADATA).is_file():
        return folder / _METADATA
    files = sorted(folder.glob(f"mp_rank_*/{megatron.FILE}")) or sorted(folder.glob(_INDEX))
    files = files or sorted(path for path in folder.glob("*") if path.suffix in _SUFFIXES)
    if not files:
        raise CheckpointError(
            "no checkpoint in this folder",
            file=folder,
            remedy="name a file of torch or safetensors, or a folder of torch.distributed.checkpoint, Megatron or "
            "write_weights",
        )
    if len(files) > 1 and files[0].name != megatron.FILE:
        raise CheckpointError(f"holds {len(files)} checkpoints", file=folder, remedy="name one of the files")
    return files[0]


def read_checkpoint(path: Path) -> Checkpoint:
    """Read the checkpoint that a file represents. Raises CheckpointError."""
    if not path.is_file():
        raise CheckpointError("no such file", file=path)
    if path.name == INDEX:
        checkpoint = read_weights(path)
    elif path.name == _METADATA:
        checkpoint = read_dcp(path)
    elif path.name == megatron.FILE and path.parent.name.startswith("mp_rank_"):
        checkpoint = megatron.read_megatron(path)
    elif path.match(_INDEX):
        checkpoint = checkpoint_files.read_sharded(path)
    elif path.suffix == ".safetensors":
        checkpoint = checkpoint_files.read_safetensors(path)
    else:
        checkpoint = checkpoint_files.read_torch(path)
    if not checkpoint.names:
        raise CheckpointError("holds no tensors", file=path)
    config = path.parent / _CONFIG
    if not config.is_file():
        return checkpoint
    return replace(checkpoint, sizes=checkpoint.sizes.completed(read_sizes(config)))


def with_sizes(checkpoint: Checkpoint, config: Path | None) -> Checkpoint:
    """Return a checkpoint with the sizes of a model's ``config.json``, which are right. Raises CheckpointError."""
    return checkpoint if config is None else replace(checkpoint, sizes=read_sizes(config).completed(checkpoint.sizes))


def read_sizes(path: Path) -> ModelSizes:
    """Read the sizes of a model from its ``config.json``. Raises CheckpointError."""
    try:
        return sizes_of_config(decode_json(read_regular(path), dict[str, Any]))
    except (OSError, JsonError) as error:
        raise CheckpointError(f"not a configuration of a model: {error}", file=path) from None


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
                dtype_name(_dcp_dtype(entry)),
                partial(_load_dcp, path, name, entry, places.get(name, {})),
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


def _dcp_dtype(entry: Any) -> torch.dtype:
    dtype = entry.properties.dtype
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"a {type(dtype).__name__} in place of a dtype")
    return dtype


def _load_dcp(path: Path, name: str, entry: Any, places: Mapping[tuple[int, ...], Any]) -> torch.Tensor:
    """Assemble a tensor of its parts, which must fill it."""
    try:
        chunks = {_sizes(chunk.offsets): _sizes(chunk.sizes) for chunk in entry.chunks}
        size = _sizes(entry.size)
        actual, expected = sum(map(math.prod, chunks.values())), math.prod(size)
        if actual != expected:
            raise ValueError(f"its parts hold {actual} of {expected} elements")
        whole = torch.empty(size, dtype=_dcp_dtype(entry))
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
