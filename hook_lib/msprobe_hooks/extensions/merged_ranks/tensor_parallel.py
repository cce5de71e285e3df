"""The records of the ranks that share the tensors of a stage as one record, with the sums that they reduced."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from msprobe_hooks.dump.communication.collectives import read_communicated
from msprobe_hooks.dump.communication.endpoints import group_ranks, reduction_of
from msprobe_hooks.dump.names import (
    is_communication,
)
from msprobe_hooks.dump.reader import Dump
from msprobe_hooks.dump.schema import forward_record, record_path
from msprobe_hooks.errors import RecordError
from msprobe_hooks.extensions.merged_ranks.shard_statistics import (
    HELD,
    REDUCED,
    SHARDS,
    TensorBody,
    are_same,
    is_placed,
    is_tensor,
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


@dataclass(frozen=True, slots=True)
class Reduction:
    """A sum over ranks: its place in the dump, its operand and its result, and who took part.

    ``is_shared``: all ranks of the stage, and others perhaps; ``is_own``: just they, and it is no average.
    """

    place: int
    operand: TensorBody
    result: TensorBody
    is_shared: bool
    is_own: bool


@dataclass(frozen=True, slots=True)
class Reductions:
    """The sums that a rank reduced with others, by their operands.

    ``flat`` are vectors that the ranks of the stage reduced, in which there may be many tensors, and their places in
    the dump.
    """

    by_operand: dict[Key, list[Reduction]] = field(default_factory=lambda: defaultdict(list))
    flat: list[tuple[int, TensorBody]] = field(default_factory=list)

    def result_of(self, part: TensorBody) -> TensorBody | None:
        """Return what became of a part of a sum that the ranks of the stage reduced."""
        matching = (one for one in self.by_operand.get(_key(part), ()) if one.is_own and _are_near(one.operand, part))
        return next((one.result for one in matching), None)

    def is_reduced(self, part: TensorBody, after: int) -> bool:
        """Return whether a part of a sum is reduced in a call that is recorded after this place in the dump."""
        if any(place > after and _may_hold(vector, part) for place, vector in self.flat):
            return True
        # What the data parallel ranks reduced first is another value by the time that this stage reduces it.
        while following := self._next(part, after):
            if following.is_shared:
                return True
            part, after = following.result, following.place
        return False

    def _next(self, part: TensorBody, after: int) -> Reduction | None:
        later = (
            one for one in self.by_operand.get(_key(part), ()) if one.place > after and _are_near(one.operand, part)
        )
        return next(later, None)


def merge_shared(
    bodies: Mapping[int, Any],
    own: Sequence[int],
    reductions: Sequence[Reductions] = (),
    after: Sequence[int] = (),
    *,
    is_gradient: bool = False,
) -> Any:
    """Return one body for those that the ranks recorded of one call, with ``shards`` where ranks hold other values.

    ``own`` are the ranks of the stage, ``reductions`` what each of them reduced, and ``after`` the place of the record
    in the dump of each; other ranks hold parts of DTensors. ``is_gradient``: it has gradients of parameters. Where each
    rank returned a part of a sum that it then reduced, the result of the reduction is used. Plain values are those of
    the first rank.
    """
    return _Merge(own, reductions, after, is_gradient=is_gradient).body(bodies)


class _Merge:
    """One record while it is merged."""

    def __init__(
        self, own: Sequence[int], reductions: Sequence[Reductions], after: Sequence[int], *, is_gradient: bool
    ) -> None:
        self._own = own
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
        if all(isinstance(part, dict) and part.keys() == first.keys() for part in own):
            return {key: self._merged(_within(parts, key)) for key in first}
        if all(isinstance(part, list) and len(part) == len(first) for part in own):
            return [self._merged(_within(parts, place)) for place in range(len(first))]
        return first

    def _placed(self, parts: Mapping[int, Any]) -> dict[str, Any]:
        """Merge a DTensor. A gradient that is spread over data parallel ranks was averaged over them."""
        merged = merge_placed(parts, self._own[0])
        if self._is_gradient and SHARDS not in merged and not ranks_in(parts[self._own[0]]) <= {*self._own}:
            merged |= {SHARDS: [], HELD: "averaged"}
        return merged

    def _with_fate(self, merged: dict[str, Any], own: Sequence[TensorBody]) -> dict[str, Any]:
        """Note of parts of a tensor whether they are reduced later."""
        if merged.get(SHARDS) and self._reductions:
            fates = zip(self._reductions, own, self._after, strict=True)
            merged[REDUCED] = all(reductions.is_reduced(part, after) for reductions, part, after in fates)
        return merged

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
    """Return the sums that a rank reduced with the others of its tensor parallel group.

    ``ranks`` are the group's; ``world`` are all there are, which a call means that names no group.
    """
    reductions = Reductions()
    for place, name in enumerate(dump.records):
        if not is_communication(name):
            continue
        try:
            body = dump.body(name)
            communicated = read_communicated(forward_record(name, body))
            given_at, returned_at = _REDUCTIONS[communicated.operation]
            operand, returned = body["input_args"][given_at], body["output"][returned_at]
        except (RecordError, LookupError, TypeError, ValueError):
            continue
        group = frozenset(group_ranks(communicated.before.get("group"))) or world
        if reduction_of(communicated) not in _SUMS or not (is_tensor(operand) and is_tensor(returned)):
            continue
        is_own = group == ranks and reduction_of(communicated) == "SUM"
        reductions.by_operand[_key(operand)].append(Reduction(place, operand, returned, group >= ranks, is_own))
        if group >= ranks and len(operand["shape"]) == 1:
            reductions.flat.append((place, operand))
    return reductions


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
