"""Orders of blocks (gate and up, heads, rotary pairs, queries with keys and values), and products with matrices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from pytest_msprobe.errors import OptionError, unknown
from pytest_msprobe.extensions.transformations.entries import Entry, ListedNames
from pytest_msprobe.extensions.transformations.step import (
    ALL_KEPT,
    NONE_KEPT,
    NORM_KEPT,
    ArrayFile,
    CallTensors,
    Shape,
    Side,
    StepError,
    array_file,
    axis_of,
    choice,
    fields,
    flag,
    integer,
    integers,
)

if TYPE_CHECKING:
    import torch

    from pytest_msprobe.yaml_with_lines import Part

RotaryLayout = Literal["interleaved", "half"]
QkvLayout = Literal["grouped", "blocks"]


class _Reordering:
    """A step that takes the elements along one axis in another order."""

    axis: int

    def order(self, size: int) -> list[int]:
        """Return the old place of each element of an axis of this size. Raises StepError where it does not fit."""
        raise NotImplementedError

    @property
    def keeps(self) -> frozenset[str]:
        """All statistics."""
        return ALL_KEPT

    @property
    def files(self) -> Sequence[Path]:
        """No files."""
        return ()

    def shape(self, shape: Shape) -> Shape:
        """Return the same shape."""
        self.order(shape[axis_of(self.axis, shape)])
        return shape

    def apply(self, tensor: torch.Tensor, call: CallTensors) -> torch.Tensor:
        """Return the tensor in the new order."""
        import torch

        axis = axis_of(self.axis, tuple(tensor.shape))
        return tensor.index_select(axis, torch.tensor(self.order(tensor.shape[axis])))


@dataclass(frozen=True)
class BlockOrder(_Reordering):
    """An axis in as many equal blocks as ``places`` has numbers, of which block ``places[i]`` becomes block ``i``."""

    places: tuple[int, ...]
    axis: int = -1

    @classmethod
    def read(cls, part: Part) -> BlockOrder:
        """Read ``reorder``. Raises OptionError."""
        keys = fields(part, ("order", "axis"), required=("order",))
        places = integers(keys["order"])
        if sorted(places) != list(range(len(places))):
            raise keys["order"].refuse("order takes each block once, counted from 0, as in [1, 0]")
        return cls(places, integer(keys["axis"]) if "axis" in keys else -1)

    @property
    def says(self) -> str:
        """Return what it does to a tensor."""
        return f"reordered to blocks {list(self.places)} of axis {self.axis}"

    def order(self, size: int) -> list[int]:
        """Return the blocks in the new order."""
        if size % len(self.places):
            raise StepError(f"an axis of {size} is not {len(self.places)} equal blocks")
        width = size // len(self.places)
        return [block * width + i for block in self.places for i in range(width)]


@dataclass(frozen=True)
class RotaryPairs(_Reordering):
    """The rotary pairs of each head: neighbours (``interleaved``, as GPT-J) or half a head apart (``half``, as NeoX).

    Of each head of ``head_dim`` the first ``rotary_dim`` elements are pairs, all where it is None.
    """

    to: RotaryLayout
    head_dim: int
    rotary_dim: int | None = None
    axis: int = -1

    @classmethod
    def read(cls, part: Part) -> RotaryPairs:
        """Read ``rotary``. Raises OptionError."""
        keys = fields(part, ("to", "head_dim", "rotary_dim", "axis"), required=("to", "head_dim"))
        head_dim = integer(keys["head_dim"], least=2)
        rotary_dim = integer(keys["rotary_dim"], least=2) if "rotary_dim" in keys else None
        if (rotary_dim or head_dim) % 2 or (rotary_dim or 0) > head_dim:
            raise part.refuse("rotary pairs need an even number of elements, at most head_dim")
        to: RotaryLayout = "half" if choice(keys["to"], ("interleaved", "half")) == "half" else "interleaved"
        return cls(to, head_dim, rotary_dim, integer(keys["axis"]) if "axis" in keys else -1)

    @property
    def says(self) -> str:
        """Return what it does to a tensor."""
        before, after = ("interleaved", "halves") if self.to == "half" else ("halves", "interleaved")
        return f"reordered in heads of {self.head_dim} from rotary {before} to {after}"

    def order(self, size: int) -> list[int]:
        """Return the elements of each head in the new order."""
        if size % self.head_dim:
            raise StepError(f"an axis of {size} is not a number of heads of {self.head_dim}")
        count = self.rotary_dim or self.head_dim
        if self.to == "half":
            pairs = [*range(0, count, 2), *range(1, count, 2)]
        else:
            pairs = [i // 2 + (i % 2) * (count // 2) for i in range(count)]
        head = [*pairs, *range(count, self.head_dim)]
        return [first + i for first in range(0, size, self.head_dim) for i in head]


@dataclass(frozen=True)
class QkvOrder(_Reordering):
    """Queries, keys and values along one axis, ``heads`` queries that share ``groups`` keys and values.

    ``grouped``: each group's queries, key and value after another, as Megatron holds them. ``blocks``: all queries,
    all keys, all values, as vLLM does.
    """

    to: QkvLayout
    heads: int
    groups: int
    axis: int = -1

    @classmethod
    def read(cls, part: Part) -> QkvOrder:
        """Read ``qkv``. Raises OptionError."""
        keys = fields(part, ("to", "heads", "groups", "axis"), required=("to", "heads"))
        heads = integer(keys["heads"], least=1)
        groups = integer(keys["groups"], least=1) if "groups" in keys else heads
        if heads % groups:
            raise part.refuse(f"{heads} heads are not a multiple of {groups} groups")
        to: QkvLayout = "grouped" if choice(keys["to"], ("grouped", "blocks")) == "grouped" else "blocks"
        return cls(to, heads, groups, integer(keys["axis"]) if "axis" in keys else -1)

    @property
    def says(self) -> str:
        """Return what it does to a tensor."""
        before, after = ("grouped", "blocks") if self.to == "blocks" else ("blocks", "grouped")
        return f"reordered from q, k, v {before} to {after}"

    def order(self, size: int) -> list[int]:
        """Return the heads of queries, keys and values in the new order."""
        total, shared = self.heads + 2 * self.groups, self.heads // self.groups
        if size % total:
            raise StepError(f"an axis of {size} is not {self.heads} queries with {self.groups} keys and values")
        queries = [group * (shared + 2) + i for group in range(self.groups) for i in range(shared)]
        keys, values = ([group * (shared + 2) + shared + i for group in range(self.groups)] for i in (0, 1))
        heads = [*queries, *keys, *values]
        if self.to == "grouped":
            places = {old: new for new, old in enumerate(heads)}
            heads = [places[i] for i in range(total)]
        width = size // total
        return [head * width + i for head in heads for i in range(width)]


_KEYS = ("by", "on", "transposed")
# A matrix stored in bfloat16 is orthogonal to some thousandths, one that is scaled by 1.01 is off by 0.02.
_TOLERANCE = 0.01
_DRAWS = 4


@dataclass(frozen=True)
class Product:
    """The tensor, as matrices in its last two axes, times a matrix: ``x @ Q``, or ``Q @ x`` on the left.

    On the right, a tensor of one axis is a row. ``is_rotation`` demands that the matrix is orthogonal.
    """

    matrix: ArrayFile
    is_left: bool = False
    is_transposed: bool = False
    is_rotation: bool = False

    @classmethod
    def of_rotation(cls, part: Part) -> Product:
        """Read ``rotate``. Raises OptionError, also where the matrix is not orthogonal."""
        step = cls._read(part, is_rotation=True)
        if not step._is_orthogonal:
            raise OptionError(
                f"{step.matrix.path}: not orthogonal: Q times its transpose is not the identity",
                file=step.matrix.place,
                remedy="normalise it, or write multiply in place of rotate",
            )
        return step

    @classmethod
    def of_any(cls, part: Part) -> Product:
        """Read ``multiply``. Raises OptionError."""
        return cls._read(part, is_rotation=False)

    @classmethod
    def _read(cls, part: Part, *, is_rotation: bool) -> Product:
        keys = fields(part, _KEYS, required=("by",))
        is_left = "on" in keys and choice(keys["on"], ("left", "right")) == "left"
        step = cls(array_file(keys["by"]), is_left, "transposed" in keys and flag(keys["transposed"]), is_rotation)
        return step.checked()

    def checked(self) -> Product:
        """Return the step. Raises OptionError where its file holds no matrix."""
        if self.matrix.tensor.ndim != 2:
            raise OptionError(
                f"{self.matrix.path}: has shape {list(self.matrix.tensor.shape)}, and a matrix has two axes",
                file=self.matrix.place,
            )
        return self

    @property
    def says(self) -> str:
        """Return what it does to a tensor."""
        verb = "rotated" if self.is_rotation else "multiplied"
        transposed = " transposed" if self.is_transposed else ""
        return f"{verb} by {self.matrix.name}{transposed}{' on the left' if self.is_left else ''}"

    @property
    def keeps(self) -> frozenset[str]:
        """The norm, where the matrix is orthogonal."""
        return NORM_KEPT if self._is_orthogonal else NONE_KEPT

    @property
    def files(self) -> Sequence[Path]:
        """The matrix's file."""
        return (self.matrix.path,)

    def shape(self, shape: Shape) -> Shape:
        """Return the shape of the product."""
        rows, columns = self._sizes
        if self.is_left:
            if len(shape) < 2 or shape[-2] != columns:
                raise StepError(f"a matrix of {rows} x {columns} does not fit {list(shape)} on the left")
            return (*shape[:-2], rows, shape[-1])
        if not shape or shape[-1] != rows:
            raise StepError(f"a matrix of {rows} x {columns} does not fit {list(shape)} on the right")
        return (*shape[:-1], columns)

    def apply(self, tensor: torch.Tensor, call: CallTensors) -> torch.Tensor:
        """Return the product, in float64."""
        import torch

        self.shape(tuple(tensor.shape))
        dtype = torch.complex128 if tensor.is_complex() else torch.float64
        matrix = (self.matrix.tensor.mT if self.is_transposed else self.matrix.tensor).to(dtype)
        return matrix @ tensor.to(dtype) if self.is_left else tensor.to(dtype) @ matrix

    @property
    def _sizes(self) -> tuple[int, int]:
        rows, columns = self.matrix.tensor.shape
        return (columns, rows) if self.is_transposed else (rows, columns)

    @cached_property
    def _is_orthogonal(self) -> bool:
        """Return whether random vectors come back: Q' (Q v) = v."""
        import torch

        rows, columns = self.matrix.tensor.shape
        if rows != columns:
            return False
        matrix = self.matrix.tensor.double()
        draws = torch.randn(columns, _DRAWS, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        return bool(((matrix.mT @ (matrix @ draws) - draws).abs() <= _TOLERANCE * (1 + draws.abs())).all())


_MAPS: Final[dict[str, Side]] = {"target_tensor_map": "target", "golden_tensor_map": "golden"}
_SECTIONS: Final = {
    "right_matmul": {name: (side, False) for name, side in _MAPS.items()},
    "left_matmul": {name: (side, True) for name, side in _MAPS.items()},
    "left_right_matmul": {
        f"{where}_{name}": (side, where == "left") for where in ("left", "right") for name, side in _MAPS.items()
    },
}


def read_msprobe_matrices(document: Part) -> Iterator[Entry]:
    """Yield the entries of a configuration in msprobe's order. Raises OptionError that names file and line."""
    sections = {name: (key, value) for name, key, value in document.items("not a mapping")}
    for name, (key, _) in sections.items():
        if name not in _SECTIONS:
            raise key.refuse(f"{unknown('section', name, _SECTIONS)}; a file of this project's own form is a list")
    for name, maps in _SECTIONS.items():
        if name in sections and not sections[name][1].is_empty:
            maps_of_section = fields(sections[name][1], tuple(maps))
            for map_name, (side, is_left) in maps.items():
                if map_name in maps_of_section and not maps_of_section[map_name].is_empty:
                    yield from _entries(maps_of_section[map_name], side, is_left=is_left)


def _entries(part: Part, side: Side, *, is_left: bool) -> Iterator[Entry]:
    for file, key, names in part.items("not a mapping of matrices to lists of names"):
        if not names.is_list:
            raise names.refuse("not a list of the names of tensors")
        product = Product(ArrayFile(part.path.parent / file, "", key.place), is_left=is_left).checked()
        listed = frozenset(member.text("the name of a tensor") for member in names.members())
        if listed:
            yield Entry(ListedNames(listed), side, (product,), key.place)
