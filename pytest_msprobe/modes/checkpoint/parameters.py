"""A checkpoint as parameters by name, whose values are read when they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from pytest_msprobe.engine.values.leaves import TreeError, leaves
from pytest_msprobe.errors import CheckpointError


@dataclass(frozen=True, slots=True)
class Parameter:
    """A tensor of a checkpoint; ``load`` reads it and may raise a UserError. ``note`` says what is odd about it."""

    shape: tuple[int, ...]
    dtype: str
    load: Callable[[], Tensor]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The parameters of a checkpoint; ``kind`` says in words what was read."""

    kind: str
    parameters: Mapping[str, Parameter] = field(default_factory=dict)


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
