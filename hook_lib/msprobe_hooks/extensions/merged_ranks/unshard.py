"""Two runs of one model in other layouts: what each holds in parts, made whole by the shapes that the other has.

Statistics do not show whether ranks hold parts of a tensor, along which dimension, or copies of it. Shapes do, since
both runs have the same whole: what the one split in two in some dimension the other has at twice the size.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

import msgspec

from msprobe_hooks.dump.json_records import encode_record
from msprobe_hooks.dump.names import direction_of, forward_of, is_module_name, is_parameters_grad, split_called
from msprobe_hooks.dump.reader import Dump
from msprobe_hooks.dump.values import STATISTICS
from msprobe_hooks.extensions.merged_ranks.shard_statistics import (
    HELD,
    MARK,
    REDUCED,
    TensorBody,
    are_alike,
    distance,
    is_tensor,
    join,
    number_of,
    shards_of,
    without_shards,
)
from msprobe_hooks.extensions.merged_ranks.tensor_parallel import decode_record

Shape: TypeAlias = tuple[int, ...]

#: Why ranks hold other values of one shape. ``partial``: parts of a sum that is not reduced yet, of which nothing is
#: known but them; ``unreduced``: such parts that no recorded call reduces later; ``gradient``: such parts of the
#: gradient of a parameter; ``unequal``: copies that should be equal; ``missing``: a part of a DTensor is not recorded;
#: ``averaged``: one run has a gradient after its reduction over data parallel ranks, the other before it; ``part``: a
#: run without a layout holds parts of DTensors, and the other one does not.
Reason = Literal["partial", "unreduced", "gradient", "unequal", "missing", "averaged", "part"]

# Copies that went wrong are still nearer to each other or to the right one than parts of a sum are.
_COPIES = 0.1
# How far the mean of a sum and the sum of the means of its parts are apart, as a fraction of the largest element; half
# precision rounds each part to 4e-3.
_ROUNDED = 4e-3

# What reports call the fields of a record.
_FIELDS = {"input_args": "input", "input_kwargs": "input"}


@dataclass(frozen=True, slots=True)
class Unmerged:
    """A value that ranks hold differently and that is not a part of a whole: its record, its place there, and why."""

    record: str
    place: str
    reason: Reason


@dataclass(slots=True)
class _Side:
    """One run while it is made whole: into how many parts it splits tensors."""

    parts: int
    unmerged: list[Unmerged] = field(default_factory=list)


def make_whole(target: Dump, golden: Dump, parts: tuple[int, int]) -> tuple[Dump, Dump, list[Unmerged]]:
    """Return two runs with whole tensors in place of shards, and what could not be merged of either.

    ``parts`` is how many ranks share a tensor in each run, 1 for one that is not merged. Raises RecordError where a
    record is malformed.
    """
    sides = (_Side(parts[0]), _Side(parts[1]))
    records = (dict(target.records), dict(golden.records))
    partners = _partners(target, golden)
    for ours, theirs in partners.items():
        names = (ours, theirs)
        texts = (bytes(records[0][ours]), bytes(records[1][theirs]))
        if texts[0] == texts[1] and not _has_shards(texts[0]):
            continue
        bodies = [decode_record(name, text) for name, text in zip(names, texts, strict=True)]
        whole = _whole(bodies, sides, names, "")
        for i in (0, 1):
            if sides[i].parts > 1 or _has_shards(texts[i]):
                records[i][names[i]] = msgspec.Raw(encode_record(whole[i]))
    for own, partnered in zip(records, ({*partners}, {*partners.values()}), strict=True):
        own |= _as_parts({name: raw for name, raw in own.items() if name not in partnered})
    merged = tuple(replace(dump, records=own) for dump, own in zip((target, golden), records, strict=True))
    return merged[0], merged[1], [*_accumulated(sides[0].unmerged), *_accumulated(sides[1].unmerged)]


def _accumulated(unmerged: Sequence[Unmerged]) -> Iterator[Unmerged]:
    """Yield what could not be merged, a gradient as reduced where it is after a later backward pass of the step."""
    reduced = {
        (_without_number(value.record), value.place)
        for value in unmerged
        if is_parameters_grad(value.record) and value.reason == "partial"
    }
    for value in unmerged:
        is_reduced = value.reason == "gradient" and (_without_number(value.record), value.place) in reduced
        yield replace(value, reason="partial") if is_reduced else value


def _without_number(record: str) -> str:
    head, _, number = record.rpartition(".")
    return head if number.isdigit() else record


def find_part(dump: Dump) -> Unmerged | None:
    """Return the first record of a run in which a rank holds a part of a DTensor."""
    for name, raw in dump.records.items():
        text = bytes(raw)
        if MARK in text and b'Shard"' in text:
            return Unmerged(name, "", "part")
    return None


def make_parts(dump: Dump) -> Dump:
    """Return a run that no other run shows how to unshard: with its shards' statistics, in the shape of one.

    Raises RecordError where a record is malformed.
    """
    return replace(dump, records={**dump.records, **_as_parts(dump.records)})


def _as_parts(records: Mapping[str, msgspec.Raw]) -> dict[str, msgspec.Raw]:
    """Return those of some records that hold shards, without them."""
    texts = {name: bytes(raw) for name, raw in records.items()}
    return {
        name: msgspec.Raw(encode_record(_alone(decode_record(name, text))))
        for name, text in texts.items()
        if _has_shards(text)
    }


def _has_shards(raw: bytes) -> bool:
    return b'"shards"' in raw


def _partners(target: Dump, golden: Dump) -> dict[str, str]:
    """Pair modules by name and calls by their place in the module that they were made in."""
    golden_names = {key: name for name, key in _keys(golden)}
    return {name: golden_names[key] for name, key in _keys(target) if key in golden_names}


def _keys(dump: Dump) -> Iterator[tuple[str, Hashable]]:
    parents = dump.surroundings.parents.entries
    counts = defaultdict[Hashable, int](int)
    keys: dict[str, Hashable] = {}
    for name in dump.records:
        if is_module_name(name):
            yield name, name
            continue
        forward = forward_of(name)
        if forward not in keys:
            around = (parents.get(forward), split_called(name)[0])
            keys[forward] = (*around, counts[around])
            counts[around] += 1
        yield name, (keys[forward], direction_of(name))


def _whole(values: Sequence[Any], sides: Sequence[_Side], names: Sequence[str], place: str) -> list[Any]:
    """Return two values that stand at the same place of two records with whole tensors in them."""
    if all(map(is_tensor, values)):
        return _whole_tensors(values, sides, names, place)
    if all(isinstance(value, dict) for value in values):
        if all(value.get("type") == "int" for value in values):
            return _whole_sizes(values, sides)
        shared = values[0].keys() & values[1].keys()
        both = {key: _whole([value[key] for value in values], sides, names, _within(place, key)) for key in shared}
        return [{key: both[key][i] if key in both else _alone(own) for key, own in values[i].items()} for i in (0, 1)]
    if all(isinstance(value, list) for value in values):
        count = min(map(len, values))
        pairs = [_whole([value[n] for value in values], sides, names, f"{place}.{n}") for n in range(count)]
        return [[pair[i] for pair in pairs] + [_alone(own) for own in values[i][count:]] for i in (0, 1)]
    return [_alone(value) for value in values]


def _within(place: str, key: str) -> str:
    return f"{place}.{key}" if place else _FIELDS.get(key, key)


def _alone(value: Any) -> Any:
    """Return a value without a counterpart, of the shape that each rank has."""
    if is_tensor(value):
        shards = shards_of(value)
        return without_shards(value) if shards is None else join(shards, value["shape"])
    if isinstance(value, dict):
        return {key: _alone(own) for key, own in value.items()}
    return [_alone(own) for own in value] if isinstance(value, list) else value


def _whole_sizes(values: Sequence[Any], sides: Sequence[_Side]) -> list[Any]:
    """Return two integers, one for both where one is a part of the other: a rank's heads, as ``view`` takes them."""
    sizes = [value.get("value") for value in values]
    if all(type(size) is int for size in sizes) and sizes[0] != sizes[1]:
        common = {sizes[0], sizes[0] * sides[0].parts} & {sizes[1], sizes[1] * sides[1].parts}
        if len(common) == 1:
            size = common.pop()
            return [{**value, "value": size} for value in values]
    return list(values)


def _whole_tensors(
    elements: Sequence[TensorBody], sides: Sequence[_Side], names: Sequence[str], place: str
) -> list[Any]:
    averaged = [i for i in (0, 1) if elements[i].get(HELD) == "averaged"]
    if len(averaged) == 1:
        sides[averaged[0]].unmerged.append(Unmerged(names[averaged[0]], place, "averaged"))
        return [{**without_shards(element), **dict.fromkeys(STATISTICS)} for element in elements]
    shapes = [tuple(element["shape"]) for element in elements]
    if shapes[0] == shapes[1]:
        shards = [shards_of(element) for element in elements]
        if shards[0] and shards[1] and sides[0].parts == sides[1].parts:
            # Both runs split it alike, whatever it is.
            return [_alone(element) for element in elements]
        return [_copy(elements[i], elements[1 - i], sides[i], names[i], place) for i in (0, 1)]
    wholes = [_wholes(element, side.parts) for element, side in zip(elements, sides, strict=True)]
    common = sorted(wholes[0] & wholes[1])
    if not common:
        return [_alone(element) for element in elements]
    joined = [_joined(element, side.parts, common[0]) for element, side in zip(elements, sides, strict=True)]
    return [_copy(joined[i], joined[1 - i], sides[i], names[i], place) for i in (0, 1)]


def _wholes(element: TensorBody, parts: int) -> set[Shape]:
    """Return the shapes that a tensor may have as a whole: that of each rank, or larger in one dimension."""
    shape: Shape = tuple(element["shape"])
    if HELD in element:
        return {shape}
    shards = [tuple(shard["shape"]) for shard in shards_of(element) or [element] * parts]
    shapes = {shape}
    for dim in range(len(shape)):
        if all(_without(shard, dim) == _without(shape, dim) for shard in shards):
            shapes.add((*shape[:dim], sum(shard[dim] for shard in shards), *shape[dim + 1 :]))
    return shapes


def _without(shape: Shape, dim: int) -> Shape:
    return shape[:dim] + shape[dim + 1 :]


def _joined(element: TensorBody, parts: int, shape: Shape) -> TensorBody:
    """Return the element of a whole of this shape; that of a rank stays where it has the shape already."""
    if shape == tuple(element["shape"]):
        return element
    return join(shards_of(element) or [element] * parts, shape)


def _copy(element: TensorBody, other: TensorBody, side: _Side, name: str, place: str) -> Any:
    """Return one element where each rank holds a tensor of the whole shape, and note it.

    Of copies that are not equal it is the one that is furthest from the other run's; of parts of a sum nothing is left
    but dtype and shape.
    """
    shards = shards_of(element)
    if shards is None:
        if element.get(HELD) == "unknown":
            side.unmerged.append(Unmerged(name, place, "missing"))
        return without_shards(element)
    is_known = shards_of(other) is None
    whole = other if is_known else shards[0]
    if HELD in element:
        are_copies = element[HELD] == "copies"
    else:
        are_copies = place.startswith("parameters.") or (is_known and _are_copies(shards, whole))
    # A DTensor knows that it holds parts of a sum, and reduces them where they are used.
    unreduced: Reason = "gradient" if is_parameters_grad(name) and HELD not in element else "unreduced"
    reason: Reason = "unequal" if are_copies else "partial" if element.get(REDUCED) else unreduced
    side.unmerged.append(Unmerged(name, place, reason))
    if are_copies:
        return join([max(shards, key=lambda shard: distance(shard, whole))], element["shape"])
    return {**without_shards(element), **dict.fromkeys(STATISTICS)}


def _are_copies(shards: Sequence[TensorBody], whole: TensorBody) -> bool:
    """Return whether ranks hold copies of one tensor and not parts of a sum: how they are to what it should be.

    Parts of a sum have means that add up, and are not all near the whole. Where a fault before them keeps the means
    from adding up, copies are still nearer to what they should be.
    """
    near = [are_alike(shard, whole, _COPIES) for shard in shards]
    means: list[Any] = [number_of(element, "Mean") for element in (*shards, whole)]
    if all(near) or None in means:
        return any(near)
    scale = max(abs(number_of(element, key) or 0) for element in (*shards, whole) for key in ("Max", "Min"))
    return any(near) and not abs(sum(means[:-1]) - means[-1]) <= _ROUNDED * scale
