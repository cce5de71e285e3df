"""Tensors of a call in memory as it was recorded: strides, offsets, and storages that several of them share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Literal, TypeAlias

import torch

from msprobe_hooks.dump.memory_layouts import Layout, span
from msprobe_standards.tensor_layouts import is_plain
from pytest_msprobe.engine.values.strides import (
    ALIGNMENT,
    filling,
    flipped,
    kept_offset,
    memory_size,
    outside,
    overlaps,
    resolved,
    write_in_order,
)

if TYPE_CHECKING:
    from pytest_msprobe.engine.replay.ops.traits import Storage

#: Where the tensors of a call lie: as recorded, so but without lazy bits, dense, or as their source has laid them out.
Memory: TypeAlias = Literal["recorded", "resolved", "contiguous", "given"]

# Memory around a tensor is made shorter where it is more than this many times its elements, and more than so many.
_TIMES, _FEW = 4, 4096

# A storage larger than that is not made anew as a whole.
_LARGEST = 2**24


@dataclass(frozen=True, slots=True)
class Member:
    """One tensor of a storage: its path, its values, and where they are to lie.

    Two on a storage of 8 elements, which overlap in three::

        storage   0 1 2 3 4 5 6 7
        args.0    a a a . a a a .      shape (2, 3), stride (4, 1), offset 0, reach 7
        args.1    . . b b b b . .      shape (4,), stride (1,), offset 2, reach 6
    """

    path: str
    values: torch.Tensor
    stride: tuple[int, ...]
    offset: int
    is_conj: bool = False
    is_neg: bool = False

    @property
    def reach(self) -> int:
        """The place behind the last element."""
        return self.offset + span(self.values.shape, self.stride)

    def on(self, memory: torch.Tensor) -> torch.Tensor:
        """Return the tensor on a storage, with its lazy bits."""
        place = memory.as_strided(self.values.shape, self.stride, self.offset)
        return flipped(place, conj=self.is_conj, neg=self.is_neg)


def in_memory(layouts: Mapping[str, Layout], memory: Memory) -> Mapping[str, Layout]:
    """Return the layouts of tensors by path where they are to lie so."""
    return {path: layout.resolved() for path, layout in layouts.items()} if memory == "resolved" else layouts


@dataclass(frozen=True)
class LaidOut:
    """Tensors by path, laid out; ``tied`` are those that have elements in common with another one."""

    tensors: Mapping[str, torch.Tensor]
    tied: frozenset[str] = frozenset()


def lay_out_all(
    tensors: Mapping[str, torch.Tensor], layouts: Mapping[str, Layout], storage: Storage | None = None
) -> LaidOut:
    """Return CPU tensors in memory of their layouts, by path; a tensor whose layout does not fit it is left out.

    Strides keep their order, what they are modulo 64 bytes, and which dimensions can be merged; gaps of many times the
    tensor's size are made shorter. Offsets keep their place modulo 64 bytes. Of elements that share a place, and of
    tensors that do, one value remains. ``storage`` is that of the row of the operation that gets the tensors.
    """
    if storage == "replaced":
        return LaidOut({})
    exact = storage == "read"
    groups: dict[object, list[tuple[Member, Layout]]] = {}
    for path, layout in layouts.items():
        values = tensors.get(path)
        if values is not None and _fits(values, layout):
            key: object = path if layout.storage is None else (layout.storage, values.dtype)
            member = Member(path, values, layout.stride, layout.storage_offset, layout.is_conj, layout.is_neg)
            groups.setdefault(key, []).append((member, layout))
    placed: dict[str, torch.Tensor] = {}
    tied: set[str] = set()
    for group in groups.values():
        members = [member for member, _ in group]
        size = max((layout.storage_size or 0 for _, layout in group), default=0)
        if exact:
            if max(size, *(member.reach for member in members)) <= _LARGEST:
                placed |= _filled(members, size)
                tied |= {member.path for member in members}
        elif len(members) > 1 and _is_one_storage(members):
            placed |= _filled(*_moved_to_front(members, size))
            tied |= _overlapping(members)
        else:
            for member, layout in group:
                placed |= _filled(*_moved_to_front([_shortened(member)], _size_beyond(member, layout)))
    return LaidOut(placed, frozenset(tied))


def _fits(values: torch.Tensor, layout: Layout) -> bool:
    if not is_plain(values) or values.numel() == 0 or len(layout.stride) != values.dim():
        return False
    return min((*layout.stride, layout.storage_offset)) >= 0


def _size_beyond(member: Member, layout: Layout) -> int:
    """Return the size of a storage that has as much behind the member's last element as the recorded one."""
    if layout.storage_size is None:
        return 0
    behind = layout.storage_size - member.reach
    return _shortened(member).reach + max(0, behind)


def _is_one_storage(members: Sequence[Member]) -> bool:
    """Return whether tensors of one storage are close enough for it to be made, or share elements."""
    start, end = min(member.offset for member in members), max(member.reach for member in members)
    count = sum(member.values.numel() for member in members)
    if end - start <= _TIMES * count + _FEW:
        return True
    return end - start <= _LARGEST and bool(_overlapping(members))


def _overlapping(members: Sequence[Member]) -> set[str]:
    """Return the paths of members that have elements in common with another one."""
    areas = sorted((member.offset, member.reach) for member in members)
    if all(end <= begin for (_, end), (begin, _) in pairwise(areas)):
        return set()
    start, size = areas[0][0], max(end for _, end in areas) - areas[0][0]
    owners = torch.zeros(size, dtype=torch.int32)
    places = [
        torch.arange(size).as_strided(member.values.shape, member.stride, member.offset - start) for member in members
    ]
    for place in places:
        is_covered = torch.zeros(size, dtype=torch.bool)
        is_covered[place] = True
        owners += is_covered
    return {member.path for member, place in zip(members, places, strict=True) if bool((owners[place] > 1).any())}


def _moved_to_front(members: Sequence[Member], size: int) -> tuple[list[Member], int]:
    """Return the members, and the size of their storage, with little before the first and behind the last one.

    What is before the first keeps its size modulo 64 bytes, and some of it where there was some.
    """
    unit = ALIGNMENT // members[0].values.element_size()
    start, end = min(member.offset for member in members), max(member.reach for member in members)
    front = kept_offset(start, unit)
    behind = min(max(0, size - end), unit)
    moved = [replace(member, offset=member.offset - start + front) for member in members]
    return moved, end - start + front + behind


def _shortened(member: Member) -> Member:
    """Return a member with shorter gaps where they are many times its elements."""
    values, stride = member.values, member.stride
    count = values.numel()
    if span(values.shape, stride) <= _TIMES * count + _FEW:
        return member
    unit = ALIGNMENT // values.element_size() if count < _LARGEST // 16 else 1
    return replace(member, stride=tuple(_shorter(values.shape, stride, unit)))


def _shorter(shape: Sequence[int], stride: Sequence[int], unit: int) -> list[int]:
    shortened = list(stride)
    reach, last = 1, None
    for dim in sorted((i for i, size in enumerate(shape) if size > 1 and stride[i] > 0), key=lambda i: stride[i]):
        step = stride[dim]
        if last is not None and step == stride[last] * shape[last]:
            # The two are one dimension for a view.
            step = shortened[last] * shape[last]
        elif step > reach:
            step = min(step, reach + 1 + (step - reach - 1) % unit)
        shortened[dim] = step
        reach += (shape[dim] - 1) * step
        last = dim
    return shortened


def _filled(members: Sequence[Member], size: int) -> dict[str, torch.Tensor]:
    """Return the members on one storage of at least so many elements, with their values written to it."""
    size = max(size, *(member.reach for member in members))
    first = resolved(members[0].values)
    if len(members) == 1 and size == first.numel():
        memory = torch.empty(size, dtype=first.dtype)
    else:
        memory = filling(first, size)
    placed = {}
    for member in members:
        placed[member.path] = place = member.on(memory)
        _write(place, member.values)
    return placed


def _write(place: torch.Tensor, values: torch.Tensor) -> None:
    """Write values to a place; of elements that are one, by a stride of 0, the first value."""
    for dim, step in enumerate(place.stride()):
        if step == 0 and place.shape[dim] > 1:
            place, values = place.narrow(dim, 0, 1), values.narrow(dim, 0, 1)
    if not overlaps(place):
        place.copy_(values)
        return
    write_in_order(place, values)


def surroundings(written: Sequence[str], leaves: Mapping[str, torch.Tensor]) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield for each storage that a call wrote to its first argument's path, and where none of its arguments lie."""
    by_storage: dict[int, list[str]] = {}
    for path in written:
        by_storage.setdefault(leaves[path].untyped_storage().data_ptr(), []).append(path)
    for paths in by_storage.values():
        leaf = leaves[paths[0]]
        others = outside([leaves[path] for path in paths], memory_size(leaf))
        if bool(others.any()):
            yield paths[0], others
