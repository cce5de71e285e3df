"""A checkpoint as parameters by name, whose values are read when they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from msprobe_hooks.extensions.weights.digest import Digest
from msprobe_hooks.extensions.weights.torch_elements import rounded_digests, tensor_digests
from pytest_msprobe.engine.values.leaves import TreeError, leaves
from pytest_msprobe.errors import CheckpointError
from pytest_msprobe.extensions.model_names.fused_parts import ModelSizes

_WIDER = ("float32", "float64")


@dataclass(frozen=True, slots=True)
class MatrixDigest:
    """Digests of a parameter as a matrix, and those that it has in bfloat16, None where it is no wider."""

    own: Digest
    rounded: Digest | None = None


@dataclass(frozen=True, slots=True)
class Piece:
    """What of a parameter some ranks hold: in words, and the first and the last row and column after it."""

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
        is_buffer: Whether it is a buffer of its model, of which others may have none.
    """

    shape: tuple[int, ...]
    dtype: str
    load: Callable[[], Tensor]
    note: str = ""
    fault: str = ""
    has_values: bool = True
    stored: Callable[[], MatrixDigest] | None = None
    pieces: tuple[Piece, ...] = ()
    is_buffer: bool = False

    def digest(self) -> MatrixDigest:
        """Return its digests, those of its values where none were written."""
        if self.stored is not None:
            return self.stored()
        tensor = self.load()
        matrix = tensor.reshape(-1, 1) if tensor.dim() < 2 else tensor.flatten(1)
        rounded = rounded_digests(matrix)[0] if self.dtype in _WIDER else None
        return MatrixDigest(tensor_digests(matrix)[0], rounded)


@dataclass(frozen=True, slots=True)
class Share:
    """What one rank holds; ``layout`` is its rank and the size of each kind of parallelism."""

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
        shared = (each.name for share in self.shares for each in share.parameters)
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
