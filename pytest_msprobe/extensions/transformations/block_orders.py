"""Blocks along an axis in another order: halves of gate and up, heads, rotary pairs, queries with keys and values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pytest_msprobe.extensions.transformations.step import ALL_KEPT, CallTensors, Shape, StepError, axis_of
from pytest_msprobe.extensions.transformations.step_fields import choice, fields, integer, integers

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
        found = fields(part, ("order", "axis"), required=("order",))
        places = integers(found["order"])
        if sorted(places) != list(range(len(places))):
            raise found["order"].refuse("order takes each block once, counted from 0, as in [1, 0]")
        return cls(places, integer(found["axis"]) if "axis" in found else -1)

    @property
    def says(self) -> str:
        """What it does to a tensor."""
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
        found = fields(part, ("to", "head_dim", "rotary_dim", "axis"), required=("to", "head_dim"))
        head_dim = integer(found["head_dim"], least=2)
        rotary_dim = integer(found["rotary_dim"], least=2) if "rotary_dim" in found else None
        if (rotary_dim or head_dim) % 2 or (rotary_dim or 0) > head_dim:
            raise part.refuse("rotary pairs need an even number of elements, at most head_dim")
        to: RotaryLayout = "half" if choice(found["to"], ("interleaved", "half")) == "half" else "interleaved"
        return cls(to, head_dim, rotary_dim, integer(found["axis"]) if "axis" in found else -1)

    @property
    def says(self) -> str:
        """What it does to a tensor."""
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
        found = fields(part, ("to", "heads", "groups", "axis"), required=("to", "heads"))
        heads = integer(found["heads"], least=1)
        groups = integer(found["groups"], least=1) if "groups" in found else heads
        if heads % groups:
            raise part.refuse(f"{heads} heads are not a multiple of {groups} groups")
        to: QkvLayout = "grouped" if choice(found["to"], ("grouped", "blocks")) == "grouped" else "blocks"
        return cls(to, heads, groups, integer(found["axis"]) if "axis" in found else -1)

    @property
    def says(self) -> str:
        """What it does to a tensor."""
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
