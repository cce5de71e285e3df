"""Checkpoints as parameters by name: files of torch and safetensors, and parameters joined from shards."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from msprobe_hooks.extensions.checkpoint.torch_weights import rounded_digests, tensor_digests
from msprobe_hooks.extensions.checkpoint.weights_file import Digest, added, shifted
from msprobe_hooks.json_decoding import JsonError, decode_json
from msprobe_hooks.messages import counted, numbered
from msprobe_hooks.regular_files import read_regular
from msprobe_hooks.torch.torch_files import RefusedFileError, load_torch_file
from pytest_msprobe.errors import CheckpointError
from pytest_msprobe.extensions.checkpoint.leaves import TreeError, leaves
from pytest_msprobe.extensions.model_names.fused_parts import ModelSizes

_WIDER = ("float32", "float64")


@dataclass(frozen=True, slots=True)
class MatrixDigest:
    """Digests of a parameter as a matrix, and those that it has in bfloat16, None where it is no wider."""

    own: Digest
    rounded: Digest | None = None


@dataclass(frozen=True, slots=True)
class Piece:
    """Part of a parameter that some ranks hold: in words, and the first and the last row and column after it."""

    words: str
    rows: range
    columns: range


@dataclass(frozen=True, slots=True)
class Parameter:
    """A tensor of a checkpoint.

    Attributes:
        shape: Its shape.
        dtype: Its dtype, as ``float32``.
        load: Reads it, and may raise a UserError, as where only digests were written.
        note: What is odd about it.
        fault: What is wrong about it by itself, as where replicas differ.
        has_values: Whether ``load`` can read it.
        stored: Returns the digests that were written, of one that is a matrix or less; None where they are computed.
        pieces: The pieces that it was put together from.
        optional: What it is, in words, where other models may have none of it: ``a buffer``.
        replica: It as another rank has it, where that rank should hold the same and does not.
        quantised: How it is quantised, in words, where its values are those of codes and scales.
        allowed: Reads how far from each of these values golden's may be.
        load_matrix: Reads one matrix of a stack, None where ``load`` is as good.
    """

    shape: tuple[int, ...]
    dtype: str
    load: Callable[[], Tensor]
    note: str = ""
    fault: str = ""
    has_values: bool = True
    stored: Callable[[], MatrixDigest] | None = None
    pieces: tuple[Piece, ...] = ()
    optional: str = ""
    replica: Replica | None = None
    quantised: str = ""
    allowed: Callable[[], Tensor] | None = None
    load_matrix: Callable[[int], Tensor] | None = None

    def digest(self) -> MatrixDigest:
        """Return its digests, those of its values where none were written."""
        if self.stored is not None:
            return self.stored()
        tensor = self.load()
        matrix = tensor.reshape(-1, 1) if tensor.dim() < 2 else tensor.flatten(1)
        rounded = rounded_digests(matrix)[0] if self.dtype in _WIDER else None
        return MatrixDigest(tensor_digests(matrix)[0], rounded)


@dataclass(frozen=True, slots=True)
class Replica:
    """A parameter as one of its ranks has it, in words which, and which rank the parameter itself is from."""

    rank: str
    other_rank: str
    parameter: Parameter


@dataclass(frozen=True, slots=True)
class Share:
    """Contents of one rank; ``layout`` is its rank and the size of each kind of parallelism."""

    rank: int
    layout: Mapping[str, tuple[int, int]]
    parameters: tuple[SharedParameter, ...]
    first_layer: int | None = None
    first_expert: int | None = None


@dataclass(frozen=True, slots=True)
class SharedParameter:
    """A rank's part of a parameter: its name there, and what the rank knows of where it belongs.

    ``whole_shape`` and ``offset`` are those of a shard that knows its place; ``sharded`` is ``rows``, ``columns``,
    ``none`` or empty, ``chunk`` a virtual pipeline stage. A stack of matrices has one of ``matrices`` for each.
    """

    name: str
    matrices: tuple[Parameter, ...]
    shape: tuple[int, ...]
    whole_shape: tuple[int, ...] | None = None
    offset: tuple[int, ...] | None = None
    sharded: str = ""
    chunk: int = 0


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The parameters of a checkpoint; ``kind`` says in words what was read.

    Where each rank's were written by themselves, ``shares`` holds them and ``parameters`` is empty. ``sizes`` are those
    of the model, ``siblings`` other steps of it.
    """

    kind: str
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    shares: tuple[Share, ...] = ()
    sizes: ModelSizes = field(default_factory=ModelSizes)
    siblings: tuple[Path, ...] = ()

    @property
    def names(self) -> list[str]:
        """The names of its parameters, as they were written."""
        shared = (shared_parameter.name for share in self.shares for shared_parameter in share.parameters)
        return list(dict.fromkeys((*self.parameters, *shared)))


def parameter(tensor: Tensor, note: str = "") -> Parameter:
    """Return a parameter whose values are there, or mapped from a file."""
    return Parameter(tuple(tensor.shape), dtype_name(tensor.dtype), lambda: tensor, note)


def dtype_name(dtype: Any) -> str:
    """Return a dtype as ``float32``."""
    return str(dtype).removeprefix("torch.")


def tensors_in(tree: Any, file: Path) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors of a file's nested dicts and lists under dotted names. Raises CheckpointError."""
    try:
        yield from ((name, leaf) for name, leaf in leaves(tree) if isinstance(leaf, Tensor))
    except TreeError as error:
        raise CheckpointError(str(error), file=file, remedy="save nested dicts and lists of tensors only") from None


_UNKNOWN = re.compile(r"(?i:unsupported (?:global|class))[^\n]*?\b([A-Za-z_]\w*(?:\.\w+)+)")
_DTYPES = {"F": "float", "BF": "bfloat", "I": "int", "U": "uint", "C": "complex"}
_NARROW = {"F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2", "F8_E8M0": "float8_e8m0fnu"}


def load_torch(path: Path, allowed: Sequence[Any] = ()) -> Any:
    """Load what torch saved, weights only, mapped where that is possible. Raises CheckpointError.

    Classes other than tensors and containers are those that are ``allowed``; any other is named and refused.
    """
    try:
        return load_torch_file(path, mapped=True, allowed=allowed)
    except RefusedFileError as error:
        raise CheckpointError(str(error), file=path) from None
    except Exception as error:
        # Bytes that are no checkpoint make torch's reader raise almost anything.
        unknown = _UNKNOWN.search(str(error))
        if unknown:
            raise CheckpointError(
                f"holds objects of class {unknown[1]}, whose code would run when they are read",
                file=path,
                remedy="save tensors, numbers and containers only",
            ) from None
        if "weights_only" in str(error):
            # torch's own text says how to run what the file holds.
            raise CheckpointError(
                "holds pickled objects, whose code would run when they are read",
                file=path,
                remedy="save tensors, numbers and containers only",
            ) from None
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise CheckpointError(f"not a readable checkpoint of torch: {first}", file=path) from None


def read_torch(path: Path) -> Checkpoint:
    """Read all tensors of a file of torch, nested under dotted names. Raises CheckpointError."""
    tensors = list(tensors_in(load_torch(path, [argparse.Namespace]), path))
    # {"a": {"b": ...}} and {"a.b": ...} are called alike.
    names = numbered(name for name, _ in tensors)
    return Checkpoint("torch", {name: parameter(tensor) for name, (_, tensor) in zip(names, tensors, strict=True)})


def read_safetensors(path: Path) -> Checkpoint:
    """Read the names, shapes and dtypes of a safetensors file. Raises CheckpointError."""
    return Checkpoint("safetensors", _safetensors(path))


def read_sharded(index: Path) -> Checkpoint:
    """Read the shards that ``*.safetensors.index.json`` names. Raises CheckpointError, also where one is missing."""
    try:
        shards = decode_json(read_regular(index), dict[str, Any]).get("weight_map", {})
        names = sorted(set(map(str, shards.values())))
    except (OSError, JsonError, AttributeError) as error:
        raise CheckpointError(f"not an index of safetensors: {error}", file=index) from None
    parameters: dict[str, Parameter] = {}
    for name in names:
        if Path(name).name != name:
            raise CheckpointError(f"shard {name!r} leads out of the folder", file=index)
        parameters |= _safetensors(index.parent / name)
    missing = sorted(set(shards) - set(parameters))
    if missing:
        raise CheckpointError(f"{counted(len(missing), 'tensor')} in no shard, first {missing[0]}", file=index)
    return Checkpoint(f"safetensors of {counted(len(names), 'shard')}", parameters)


def _safetensors(path: Path) -> dict[str, Parameter]:
    if find_spec("safetensors") is None:
        raise CheckpointError("requires safetensors", file=path, remedy="pip install 'pytest-msprobe[cases]'")
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise CheckpointError("this shard is missing", file=path, remedy="copy it to this place")
    try:
        with safe_open(path, framework="pt") as file:
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
            return {
                name: Parameter(tuple(stored.get_shape()), _dtype(stored.get_dtype()), partial(_load, path, name))
                for name, stored in slices.items()
            }
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"not a readable safetensors file: {error}", file=path) from None


def _load(path: Path, name: str) -> torch.Tensor:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            tensor: torch.Tensor = file.get_tensor(name)
            return tensor
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{name} cannot be read: {error}", file=path) from None


def _dtype(text: str) -> str:
    """Return what torch calls a dtype of safetensors."""
    kind, bits = re.fullmatch(r"([A-Z]*)(.*)", text, re.DOTALL).groups()  # type: ignore[union-attr]
    return f"{_DTYPES[kind]}{bits}" if kind in _DTYPES and bits.isdecimal() else _NARROW.get(text, text.lower())


_Stored: TypeAlias = Callable[[], MatrixDigest]


@dataclass(frozen=True, slots=True)
class Placed:
    """A shard, what holds it in words, and the row and the column of the whole at which it begins."""

    shard: Parameter
    words: str
    row: int = 0
    column: int = 0


def rows_of(whole: Parameter, rows: Sequence[slice]) -> Parameter:
    """Return some runs of rows as a parameter; the digests of its columns are unknown, unless it has all rows."""
    count = sum(run.stop - run.start for run in rows)
    if len(rows) == 1 and count == whole.shape[0]:
        return whole

    def load() -> Tensor:
        return torch.cat([whole.load()[run] for run in rows])

    def stored() -> MatrixDigest:
        digests = whole.digest()
        return MatrixDigest(_rows_of(digests.own, rows), digests.rounded and _rows_of(digests.rounded, rows))

    return replace(whole, shape=(count, *whole.shape[1:]), load=load, stored=_unless_computed(stored, [whole]))


def transposed(whole: Parameter, note: str) -> Parameter:
    """Return a matrix's transpose as a parameter."""

    def stored() -> MatrixDigest:
        digests = whole.digest()
        return MatrixDigest(_transposed(digests.own), digests.rounded and _transposed(digests.rounded))

    return replace(
        whole,
        shape=whole.shape[::-1],
        load=lambda: whole.load().t(),
        stored=_unless_computed(stored, [whole]),
        note=note,
    )


def joined(name: str, placed: Sequence[Placed], shape: tuple[int, ...]) -> Parameter:
    """Return the whole of shards. Raises CheckpointError where they leave out or hold twice what it has."""
    first = placed[0].shard
    if len(placed) == 1 and first.shape == shape:
        return first
    height, width = _matrix(shape)
    count = sum(np.prod(_matrix(one.shard.shape)) for one in placed)
    inside = all(
        one.row + _matrix(one.shard.shape)[0] <= height and one.column + _matrix(one.shard.shape)[1] <= width
        for one in placed
    )
    if count != height * width or not inside or len({(one.row, one.column) for one in placed}) != len(placed):
        raise CheckpointError(
            f"shards of {name} hold {count} of {height * width} elements", remedy="write the weights of all ranks"
        )
    if len({one.shard.dtype for one in placed}) > 1:
        raise CheckpointError(f"shards of {name} have different dtypes")

    def load() -> Tensor:
        whole = torch.empty(height, width, dtype=first.load().dtype)
        for one in placed:
            rows, columns = _matrix(one.shard.shape)
            part = one.shard.load().reshape(rows, columns)
            whole[one.row : one.row + rows, one.column : one.column + columns] = part
        return whole.reshape(shape)

    def stored() -> MatrixDigest:
        digests = [(one, one.shard.digest()) for one in placed]
        rounded = [(one, digest.rounded) for one, digest in digests]
        own = _joined([(one, digest.own) for one, digest in digests], height, width)
        complete = [(one, digest) for one, digest in rounded if digest is not None]
        return MatrixDigest(own, _joined(complete, height, width) if len(complete) == len(rounded) else None)

    pieces = tuple(
        Piece(
            one.words,
            range(one.row, one.row + _matrix(one.shard.shape)[0]),
            range(one.column, one.column + _matrix(one.shard.shape)[1]),
        )
        for one in placed
    )
    shards = [one.shard for one in placed]
    return Parameter(
        shape,
        first.dtype,
        load,
        note=next((one.note for one in shards if one.note), ""),
        fault=next((one.fault for one in shards if one.fault), ""),
        has_values=all(one.has_values for one in shards),
        stored=_unless_computed(stored, shards),
        pieces=pieces,
        optional=first.optional,
        quantised=first.quantised,
    )


def _unless_computed(stored: _Stored, parameters: Sequence[Parameter]) -> _Stored | None:
    """Return ``stored`` where all digests were written; computing them once of the result takes less."""
    return stored if all(piece.stored is not None for piece in parameters) else None


def _matrix(shape: tuple[int, ...]) -> tuple[int, int]:
    return (int(np.prod(shape)), 1) if len(shape) < 2 else (shape[0], int(np.prod(shape[1:])))


def _rows_of(digest: Digest, rows: Sequence[slice]) -> Digest:
    return Digest(np.concatenate([digest.rows[run] for run in rows]), None)


def _transposed(digest: Digest) -> Digest:
    if digest.columns is None:
        raise CheckpointError("digests of columns are unknown")
    return Digest(digest.columns, digest.rows)


def _joined(placed: Sequence[tuple[Placed, Digest]], height: int, width: int) -> Digest:
    rows, columns = np.zeros(height, np.uint64), np.zeros(width, np.uint64)
    has_columns = True
    for place, digest in placed:
        down = slice(place.row, place.row + len(digest.rows))
        rows[down] = added(rows[down], shifted(digest.rows, place.column))
        if digest.columns is None:
            has_columns = False
            continue
        across = slice(place.column, place.column + len(digest.columns))
        columns[across] = added(columns[across], shifted(digest.columns, place.row))
    return Digest(rows, columns if has_columns else None)
