"""Results of few bits, that may be rounded to either side, and exponents that blocks of them share.

Neighbours are neighbouring numbers of the format: of two numbers that an element holds, each is judged by itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pytest_msprobe.engine.replay.ops.op_info import are_neighbours
from pytest_msprobe.engine.replay.ops.traits import Arguments
from pytest_msprobe.extensions.npu_operators.quantization.number_formats import (
    BLOCK,
    HIFLOAT8,
    INT4,
    INT8,
    INT32,
    NumberFormat,
    blocks_of_rows,
    hifloat8_table,
    number_format,
    numbers_in,
    round_to,
    store,
    unpack,
)

#: Dtypes whose numbers are rounded to whole ones of eight bits.
EIGHT_BITS = frozenset({torch.int8, torch.uint8})

# docs/standards-reference.md, "Quantized results"
_OTHER_EXPONENTS = 1 / 16
# How far, relative to it, the largest magnitude of a block may be off: what rounding to bfloat16 in between costs.
_ROUNDING = 2.0**-8
# Beyond every number, and further from it than its neighbour.
_INFINITE = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedExponents:
    """Which result, ``at``, holds the exponents that blocks of 32 numbers along an axis of another, ``of``, share.

    ``axis`` is that axis, or the keyword that says which, and ``block`` a keyword for another size. ``groups`` is the
    name, and ``groups_at`` the position, of groups of rows with which blocks along the last but one axis begin anew:
    their ends or, with ``are_sizes``, their sizes.
    """

    at: int
    of: int = 0
    axis: int | str = -1
    block: str = ""
    groups: str = ""
    groups_at: int | None = None
    are_sizes: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantizedResults:
    """Which numbers an operation's results hold: those of the dtype argument ``dtype``, ``default`` without it.

    ``at`` is its position where it may be given by that. Results of another dtype hold one of the formats ``also``,
    and int32 holds numbers of 4 bits unless ``of_int32``.
    ``algorithm`` is the default of ``scale_alg``. With ``exact`` the largest magnitude of a block is one of the inputs'
    numbers, so that the specification's exponent is not open.
    """

    dtype: str = "dst_type"
    at: int | None = None
    default: NumberFormat = INT8
    also: tuple[NumberFormat, ...] = ()
    of_int32: bool = False
    exponents: tuple[SharedExponents, ...] = ()
    algorithm: int = 0
    exact: bool = False

    def formats(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[NumberFormat, ...]:
        """Return the formats that a call's results may hold, the one that it asks for first."""
        given = args[self.at] if self.at is not None and self.at < len(args) else kwargs.get(self.dtype)
        asked = number_format(given) or self.default
        return (INT4 if asked is INT32 and not self.of_int32 else asked, *self.also)

    def accept(self, arguments: Arguments, target: list[Any], golden: list[Any]) -> None:
        """Replace the target's numbers by golden's, and golden's exponents, where both are right."""
        shared = {each.of: each for each in self.exponents}
        exponents = {each.at for each in self.exponents}
        formats = self.formats(*arguments)
        for position, right in enumerate(golden):
            found = target[position]
            numbers = next((each for each in formats if isinstance(right, Tensor) and each.stored is right.dtype), None)
            if position in exponents or numbers is None or not _are_alike(found, right):
                continue
            at = shared[position].at if position in shared else None
            if at is None or not isinstance(golden[at], Tensor) or golden[at].dtype is not torch.uint8:
                if are_neighbours(ranks(found, numbers), ranks(right, numbers)):
                    target[position] = right
                continue
            blocks = _Blocks(self, shared[position], arguments, numbers)
            if _are_alike(target[at], golden[at]) and blocks.are_right(found, right, target[at], golden[at]):
                target[position], target[at] = right, golden[at]

    def accept_argument(self, arguments: Arguments, found: Any, right: Any) -> Any:
        """Return golden's tensor for what a call wrote to an argument where it holds the same numbers or neighbours."""
        for numbers in self.formats(*arguments):
            is_of_format = _are_alike(found, right) and right.dtype is numbers.stored
            if is_of_format and are_neighbours(ranks(found, numbers), ranks(right, numbers)):
                return right
        return found


def _are_alike(found: Any, right: Any) -> bool:
    are_tensors = isinstance(found, Tensor) and isinstance(right, Tensor)
    return are_tensors and found.shape == right.shape and found.dtype == right.dtype


def ranks(stored: Tensor, of: NumberFormat) -> Tensor:
    """Return whole numbers, one for each number, that are in its order and next to each other for neighbours."""
    if of is HIFLOAT8:
        bits = stored.view(torch.uint8).long()
        order = torch.full((128,), _INFINITE, dtype=torch.int64)
        order[hifloat8_table()[1].long()] = torch.arange(len(hifloat8_table()[1]))
        magnitudes, negative = order[bits & 0x7F].masked_fill(bits == 0x80, 2 * _INFINITE), bits >> 7 == 1
    elif of.packed > 1 and not of.is_whole:
        bits = unpack(stored, of)
        magnitudes, negative = bits & 7, bits >> 3 == 1
    elif of.is_whole:
        return numbers_in(stored, of).long()
    else:
        bits = stored.view(torch.uint8).long()
        beyond = stored.float().abs()
        magnitudes = (bits & 0x7F).masked_fill(beyond.isinf(), _INFINITE).masked_fill(beyond.isnan(), 2 * _INFINITE)
        negative = (bits >> 7 == 1) & ~beyond.isnan()
    return torch.where(negative, -magnitudes, magnitudes)


class _Blocks:
    """Blocks of numbers with a shared exponent each, as the arguments of a call say."""

    def __init__(
        self, quantized: QuantizedResults, shared: SharedExponents, arguments: Arguments, numbers: NumberFormat
    ) -> None:
        args, self._kwargs = arguments
        self._shared = shared
        at = shared.groups_at
        self._groups = args[at] if at is not None and at < len(args) else self._kwargs.get(shared.groups)
        self._numbers = numbers
        self._algorithm = self._kwargs.get("scale_alg") or quantized.algorithm
        self._is_exact = quantized.exact and self._algorithm == 0

    def are_right(self, found: Tensor, right: Tensor, exponents: Tensor, right_exponents: Tensor) -> bool:
        """Return whether numbers and exponents are those of golden, or right where their largest magnitude is rounded.

        A block whose largest magnitude is where the exponent changes may have either; one in sixteen, or one of a few.
        """
        positions = self._spread(torch.arange(exponents.numel()).view_as(exponents), numbers_in(right, self._numbers))
        step = exponents.long() - right_exponents.long()
        other = int((step != 0).sum())
        is_used = torch.zeros(exponents.numel(), dtype=torch.bool)
        is_used[positions.flatten()] = True
        if other == 0:
            return are_neighbours(ranks(found, self._numbers), ranks(right, self._numbers))
        if self._is_exact or int(step.abs().max()) > 1 or bool((step.flatten() != 0)[~is_used].any()):
            return False
        if other > max(1, int(_OTHER_EXPONENTS * int(is_used.sum()))):
            return False
        steps = step.flatten()[positions]
        agreed = steps == 0
        same = are_neighbours(ranks(found, self._numbers)[agreed], ranks(right, self._numbers)[agreed])
        return same and self._are_halved(found, right, steps, positions)

    def _are_halved(self, found: Tensor, right: Tensor, steps: Tensor, positions: Tensor) -> bool:
        """Return whether blocks of another exponent than golden's hold halves, up to where the exponent changes."""
        values = numbers_in(found, self._numbers), numbers_in(right, self._numbers)
        coarse, fine = torch.where(steps > 0, *values), torch.where(steps > 0, values[1], values[0])
        changes = self._change()
        largest = torch.zeros(int(positions.max()) + 1, dtype=torch.float64)
        largest.scatter_reduce_(0, positions.flatten(), coarse.abs().flatten(), "amax")
        is_other = steps != 0
        is_there = torch.isin(largest[positions], torch.tensor(changes, dtype=torch.float64))
        is_saturated = fine.abs() == self._numbers.largest
        upper = (coarse.abs() >= self._numbers.largest / 2) & (coarse.abs() <= max(changes))
        halves = ranks(store(fine / 2, self._numbers), self._numbers)
        coarse_ranks = ranks(store(coarse, self._numbers), self._numbers)
        are_halves = torch.where(is_saturated, upper & (coarse * fine > 0), (halves - coarse_ranks).abs() <= 1)
        return bool((is_there & are_halves)[is_other].all())

    def _change(self) -> list[float]:
        """Return the numbers that the largest of a block may be where the exponent goes up."""
        given = self._kwargs.get("dst_type_max") or self._numbers.largest
        at = 2.0**self._numbers.emax if self._algorithm == 0 else given / 2
        around = torch.tensor([at * (1 - _ROUNDING), at, at * (1 + _ROUNDING)], dtype=torch.float64)
        return sorted(set(round_to(around, self._numbers).tolist()))

    def _spread(self, blocks: Tensor, numbers: Tensor) -> Tensor:
        """Return what blocks have, as the exponents lie, for each of their numbers."""
        axis = self._shared.axis if isinstance(self._shared.axis, int) else self._kwargs.get(self._shared.axis, -1)
        axis = axis if axis < 0 else axis - numbers.dim()
        if isinstance(self._groups, Tensor) and axis == -2:
            ends = (self._groups.cumsum(0) if self._shared.are_sizes else self._groups).tolist()
            return blocks.movedim(-1, 1).flatten(0, 1)[blocks_of_rows(len(numbers), ends).clamp(min=0)]
        along = blocks.movedim(axis - 1, -2).flatten(-2)
        each = along.repeat_interleave(self._kwargs.get(self._shared.block) or BLOCK, -1)
        return each[..., : numbers.shape[axis]].movedim(-1, axis)
