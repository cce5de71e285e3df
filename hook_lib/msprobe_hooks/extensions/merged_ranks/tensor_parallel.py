"""The records of the ranks of a stage as one record, with the sums that they reduced."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from msprobe_hooks.dump.communication.collectives import read_communicated
from msprobe_hooks.dump.communication.endpoints import group_ranks, reduction_of
from msprobe_hooks.dump.names import is_communication, split_called
from msprobe_hooks.dump.reader import Dump
from msprobe_hooks.dump.schema import forward_record, record_path
from msprobe_hooks.errors import RecordError
from msprobe_hooks.extensions.merged_ranks.shard_statistics import (
    FINAL,
    HELD,
    REDUCED,
    SHARDS,
    SHARES,
    Axes,
    TensorBody,
    are_same,
    axes_of,
    differ_along,
    is_placed,
    is_tensor,
    line_along,
    merge_placed,
    merge_ranks,
    number_of,
    ranks_in,
)
from msprobe_hooks.json_decoding import JsonError, decode_json

#: What a recorded tensor is known by, in whatever shape and order of elements it is given; its mean and norm, which
#: are rounded in that order, are near those of the other.
Key: TypeAlias = tuple[Any, ...]

# By operation, the place of what is given among the arguments, and of what is returned among those after the call.
_REDUCTIONS: Final = {"all_reduce": (0, 0), "reduce_scatter_tensor": (1, 0)}
_SUMS: Final = frozenset({"SUM", "AVG"})
_SCALINGS: Final = frozenset({"div", "mul", "truediv", "itruediv", "imul", "true_divide"})


@dataclass(frozen=True, slots=True)
class Reduction:
    """A sum over ranks, or a product with a number: its name and place in the dump, its operand, result and ranks.

    ``group`` is empty for a product; ``is_average``: the result is the mean over the group.
    """

    name: str
    place: int
    operand: TensorBody
    result: TensorBody
    group: frozenset[int] = frozenset()
    is_average: bool = False


@dataclass(frozen=True, slots=True)
class Reductions:
    """The sums that a rank reduced with others of ``ranks``, its stage's, by their operands.

    ``scaled`` are products with a number, which make a mean of a sum. ``flat`` are vectors that ranks reduced, in which
    there may be many tensors.
    """

    ranks: frozenset[int] = frozenset()
    by_operand: dict[Key, list[Reduction]] = field(default_factory=lambda: defaultdict(list))
    scaled: dict[Key, list[Reduction]] = field(default_factory=lambda: defaultdict(list))
    flat: list[Reduction] = field(default_factory=list)

    def result_of(self, part: TensorBody) -> TensorBody | None:
        """Return what became of a part of a sum that ranks of the stage reduced."""
        return next(
            (
                one.result
                for one in self.by_operand.get(_key(part), ())
                if one.group <= self.ranks and not one.is_average and _are_near(one.operand, part)
            ),
            None,
        )

    def is_reduced(self, part: TensorBody, after: int, groups: Sequence[frozenset[int]]) -> bool:
        """Return whether a part of a sum is reduced over each of some groups after this place in the dump."""
        vectors = [one.group for one in self.flat if one.place > after and _may_hold(one.operand, part)]
        left = [group for group in groups if not any(group <= reduced for reduced in vectors)]
        # What the data parallel ranks reduced first is another value by the time that this stage reduces it.
        while left and (following := _next(self.by_operand, part, after)):
            left = [group for group in left if not group <= following.group]
            part, after = following.result, following.place
        return not left


def reduced_gradients(
    reductions: Sequence[Reductions],
    parts: Sequence[TensorBody],
    after: Sequence[int],
    groups: Sequence[Sequence[frozenset[int]]],
) -> Sequence[TensorBody] | None:
    """Return what became of a gradient on each rank after its reductions and products with a number.

    ``parts`` are what the ranks have of it, ``after`` the place of the record in the dump of each, and ``groups`` the
    ranks over which each has to reduce it. All ranks make the same calls, so that of one name is it where each gave it
    its part. None where it is not reduced over all groups, or over ranks of other models, too.
    """
    left = [[*own] for own in groups]
    while steps := _same_call(reductions, parts, after):
        if any(not step.group <= own.ranks for step, own in zip(steps, reductions, strict=True)):
            return None
        left = [[group for group in own if not group <= step.group] for own, step in zip(left, steps, strict=True)]
        parts, after = [step.result for step in steps], [step.place for step in steps]
    return None if any(left) else parts


def _same_call(
    reductions: Sequence[Reductions], parts: Sequence[TensorBody], after: Sequence[int]
) -> list[Reduction] | None:
    """Return the first call of one name that each rank gave its part after a place; None where there is none."""
    by_rank = [
        {
            one.name: one
            for one in (*own.by_operand.get(_key(part), ()), *own.scaled.get(_key(part), ()))
            if one.place > start and one.operand["shape"] == part["shape"] and _are_near(one.operand, part)
        }
        for own, part, start in zip(reductions, parts, after, strict=True)
    ]
    first = next((name for name in by_rank[0] if all(name in calls for calls in by_rank)), None)
    return None if first is None else [calls[first] for calls in by_rank]


def _next(among: Mapping[Key, Sequence[Reduction]], part: TensorBody, after: int) -> Reduction | None:
    later = (one for one in among.get(_key(part), ()) if one.place > after and _are_near(one.operand, part))
    return next(later, None)


def merge_shared(
    bodies: Mapping[int, Any],
    own: Sequence[int],
    reductions: Sequence[Reductions] = (),
    after: Sequence[int] = (),
    *,
    axes: Axes = (),
    is_gradient: bool = False,
) -> Any:
    """Return one body for those that the ranks recorded of one call, with ``shards`` where ranks hold other values.

    ``own`` are the ranks of the stage, ``reductions`` what each of them reduced, and ``after`` the place of the record
    in the dump of each; other ranks hold parts of DTensors. ``axes`` are the numbers of ranks along each axis on which
    those of the stage are ordered, tensor parallelism last. ``is_gradient``: it has gradients of parameters. Where each
    rank returned a part of a sum that it then reduced, the result of the reduction is used. Plain values are those of
    the first rank.
    """
    return _Merge(own, reductions, after, axes, is_gradient=is_gradient).body(bodies)


class _Merge:
    """One record while it is merged."""

    def __init__(
        self,
        own: Sequence[int],
        reductions: Sequence[Reductions],
        after: Sequence[int],
        axes: Axes,
        *,
        is_gradient: bool,
    ) -> None:
        self._own = own
        self._axes = axes_of(len(own), axes)
        self._is_gradient = is_gradient
        self._reductions = reductions
        self._after = after

    def body(self, bodies: Mapping[int, Any]) -> Any:
        merged = self._merged(bodies)
        outputs = [bodies[rank].get("output") if isinstance(bodies[rank], dict) else None for rank in self._own]
        if isinstance(merged, dict) and all(isinstance(output, list) for output in outputs):
            merged["output"] = [
                self._after_reduction(element, parts)
                for element, parts in zip(merged["output"], zip(*outputs, strict=False), strict=False)
            ]
        return merged

    def _merged(self, parts: Mapping[int, Any]) -> Any:
        own = [parts[rank] for rank in self._own]
        first = own[0]
        if all(map(is_tensor, own)):
            return self._with_fate(self._placed(parts) if all(map(is_placed, own)) else merge_ranks(own), own)
        if all(isinstance(part, dict) and part.get("type") == "int" for part in own):
            return self._integer(own)
        if all(isinstance(part, dict) and part.keys() == first.keys() for part in own):
            return {key: self._merged(_within(parts, key)) for key in first}
        if all(isinstance(part, list) and len(part) == len(first) for part in own):
            return [self._merged(_within(parts, place)) for place in range(len(first))]
        return first

    def _integer(self, own: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Merge integers, with the sum over ranks with other tokens where these have others."""
        values = [part.get("value") for part in own]
        by_tokens = values[:: self._axes[-1]]
        if len({*map(str, values)}) == 1 or not all(type(value) is int for value in values):
            return {**own[0]}
        return {**own[0], SHARES: sum(by_tokens)}

    def _placed(self, parts: Mapping[int, Any]) -> dict[str, Any]:
        """Merge a DTensor. A gradient that is spread over data parallel ranks was averaged over them."""
        merged = merge_placed(parts, self._own[0])
        if self._is_gradient and SHARDS not in merged and not ranks_in(parts[self._own[0]]) <= {*self._own}:
            merged |= {SHARDS: [], HELD: "averaged"}
        return merged

    def _with_fate(self, merged: dict[str, Any], own: Sequence[TensorBody]) -> dict[str, Any]:
        """Note of parts of a tensor whether they are reduced later; of gradients by tokens, put what they became."""
        if not merged.get(SHARDS) or not self._reductions:
            return merged
        every = [axis for axis in range(len(self._axes)) if self._axes[axis] > 1]
        # DTensors say of equal addends that they are such.
        differing = [axis for axis in every if differ_along(own, self._axes, axis)] or every
        fates = [*zip(self._reductions, own, self._after, range(len(own)), strict=True)]
        by_tokens = [axis for axis in differing if axis < len(self._axes) - 1]
        if self._is_gradient and by_tokens:
            groups = [self._groups(place, by_tokens) for place in range(len(own))]
            final = reduced_gradients(self._reductions, own, self._after, groups)
            if final is not None:
                return {**merge_ranks(final), FINAL: True}
        merged[REDUCED] = all(
            reductions.is_reduced(part, after, self._groups(place, differing))
            for reductions, part, after, place in fates
        )
        return merged

    def _groups(self, place: int, differing: Sequence[int]) -> list[frozenset[int]]:
        """Return the ranks that differ from one of the stage along each of some axes alone."""
        return [frozenset(self._own[i] for i in line_along(self._axes, axis, place)) for axis in differing]

    def _after_reduction(self, element: Any, parts: Sequence[Any]) -> Any:
        if not isinstance(element, dict) or not element.get(SHARDS) or len(parts) != len(self._reductions):
            return element
        results = [own.result_of(part) for part, own in zip(parts, self._reductions, strict=True)]
        reduced = [after for after in results if after is not None]
        if len(reduced) < len(results):
            return element
        if all(math.prod(after["shape"]) == math.prod(element["shape"]) for after in reduced):
            reduced = [{**after, "shape": element["shape"]} for after in reduced]
        if "requires_grad" in element:
            # Made where no gradients are tracked, in a function of autograd, it stands for a value that has one.
            reduced = [{**after, "requires_grad": element["requires_grad"]} for after in reduced]
        return merge_ranks(reduced)


def _within(parts: Mapping[int, Any], at: Any) -> dict[int, Any]:
    """Return what is at a key or an index in the parts that have it."""
    within = {}
    for rank, part in parts.items():
        try:
            within[rank] = part[at]
        except (LookupError, TypeError):
            continue
    return within


def reductions_of(dump: Dump, ranks: frozenset[int], world: frozenset[int]) -> Reductions:
    """Return the sums that a rank reduced with others.

    ``ranks`` are those of its stage; ``world`` are all there are, which a call means that names no group.
    """
    reductions = Reductions(ranks)
    for place, name in enumerate(dump.records):
        if is_communication(name):
            _add_reduction(reductions, dump, place, name, world)
        elif len(ranks) > 1 and split_called(name)[0].rpartition(".")[2].strip("_") in _SCALINGS:
            _add_scaling(reductions, dump, place, name)
    return reductions


def _add_reduction(reductions: Reductions, dump: Dump, place: int, name: str, world: frozenset[int]) -> None:
    try:
        body = dump.body(name)
        communicated = read_communicated(forward_record(name, body))
        given_at, returned_at = _REDUCTIONS[communicated.operation]
        operand, returned = body["input_args"][given_at], body["output"][returned_at]
    except (RecordError, LookupError, TypeError, ValueError):
        return
    if reduction_of(communicated) not in _SUMS or not (is_tensor(operand) and is_tensor(returned)):
        return
    group = frozenset(group_ranks(communicated.before.get("group"))) or world
    reduction = Reduction(name, place, operand, returned, group, reduction_of(communicated) == "AVG")
    reductions.by_operand[_key(operand)].append(reduction)
    if len(operand["shape"]) == 1:
        reductions.flat.append(reduction)


def _add_scaling(reductions: Reductions, dump: Dump, place: int, name: str) -> None:
    """Add a product that makes a mean over ranks of a sum, or undoes it: by a number that ranks of the stage have."""
    try:
        body = dump.body(name)
        operand, factor = body["input_args"][:2]
        returned, number = body["output"][0], float(factor["value"])
    except (RecordError, LookupError, TypeError, ValueError):
        return
    by = max(number, 1 / number) if number > 0 else 0.0
    if by in range(2, len(reductions.ranks) + 1) and is_tensor(operand) and is_tensor(returned):
        reductions.scaled[_key(operand)].append(Reduction(name, place, operand, returned))


def _key(element: TensorBody) -> Key:
    return element["dtype"], math.prod(element["shape"]), number_of(element, "Max"), number_of(element, "Min")


def _are_near(element: TensorBody, other: TensorBody) -> bool:
    return are_same({**element, "shape": []}, {**other, "shape": []})


def _may_hold(vector: TensorBody, part: TensorBody) -> bool:
    """Return whether a tensor may be one of many that a vector holds one after the other."""
    if vector["dtype"] != part["dtype"] or math.prod(part["shape"]) >= vector["shape"][0]:
        return False
    pairs: list[tuple[Any, Any]] = [(number_of(part, name), number_of(vector, name)) for name in ("Max", "Norm")]
    least: tuple[Any, Any] = (number_of(vector, "Min"), number_of(part, "Min"))
    return all(None not in pair and pair[0] <= pair[1] for pair in (*pairs, least))


def decode_record(name: str, text: bytes) -> dict[str, Any]:
    """Return the body of a record. Raises RecordError where it is no JSON object."""
    try:
        body = decode_json(text)
    except JsonError as error:
        raise RecordError(record_path(name), str(error)) from None
    if not isinstance(body, dict):
        raise RecordError(record_path(name), "expected an object")
    return body
