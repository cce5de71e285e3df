"""Two runs of one model in other layouts: what each holds in parts, made whole by the shapes that the other has.

Statistics do not show whether ranks hold parts of a tensor, along which dimension, or copies of it. Shapes do, since
both runs have the same whole: what the one split in two in some dimension the other has at twice the size. In which
order parts follow each other, as the chunks of a sequence do, makes no difference to the statistics of the whole.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, product
from typing import Any, Final, Literal, TypeAlias

import msgspec

from msprobe_hooks.dump.json_records import encode_record
from msprobe_hooks.dump.names import (
    direction_of,
    forward_of,
    is_forward,
    is_module_name,
    is_parameters_grad,
    split_called,
)
from msprobe_hooks.dump.reader import Dump
from msprobe_hooks.dump.values import STATISTICS
from msprobe_hooks.errors import DumpError
from msprobe_hooks.extensions.merged_ranks.shard_statistics import (
    FINAL,
    HELD,
    MARK,
    REDUCED,
    SHARES,
    Axes,
    TensorBody,
    are_alike,
    are_same,
    axes_of,
    differ_along,
    distance,
    is_tensor,
    join,
    merge_ranks,
    number_of,
    scaled,
    shards_of,
    without_shards,
)
from msprobe_hooks.extensions.merged_ranks.tensor_parallel import decode_record

Shape: TypeAlias = tuple[int, ...]
#: The dimension in which ranks along each axis hold parts of a tensor; None where they hold copies, or parts of a sum.
Plan: TypeAlias = tuple[int | None, ...]

#: Why ranks hold other values of one shape. ``partial``: parts of a sum that is not reduced yet, of which nothing is
#: known but them; ``unreduced``: such parts that no recorded call reduces later; ``gradient``: such parts of the
#: gradient of a parameter; ``unequal``: copies that should be equal; ``missing``: a part of a DTensor is not recorded;
#: ``averaged``: one run has a gradient after its reduction over data parallel ranks, the other before it; ``part``: a
#: run without a layout holds parts of DTensors, and the other one does not; ``tokens``: a mean over the tokens of each
#: rank, of which only the bounds of the whole are known; ``positions``: each rank counts its tokens from 0;
#: ``scaled``: from this record on, gradients are a multiple.
Reason = Literal[
    "partial", "unreduced", "gradient", "unequal", "missing", "averaged", "part", "tokens", "positions", "scaled"
]

# Copies that went wrong are still nearer to each other or to the right one than parts of a sum are.
_COPIES = 0.1
# How far the mean of a sum and the sum of the means of its parts are apart, as a fraction of the largest element; half
# precision rounds each part to 4e-3.
_ROUNDED = 4e-3

# How far a factor of gradients may be from a number of ranks: faults that a device makes are smaller, or are no factor.
_NEAR_FACTOR = 0.05
# Sums and means of losses over ranks are added up in float64, and rounded to float32 by the run of one process.
_ROUNDED_LOSS = 1e-5
#: Calls whose result over all tokens is the sum, or the mean by tokens, of those over the tokens of each rank.
_REDUCTIONS: Final = frozenset({"sum", "mean", "cross_entropy", "CrossEntropyLoss"})

_SIZES: Final = frozenset({"int", "torch.Size"})

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
    """One run while it is made whole: how its ranks are ordered, and by what its gradients are a multiple."""

    axes: Axes
    scale: float = 1.0
    #: Factors that a single number may have, by the numbers of ranks.
    factors: Collection[float] = frozenset({1.0})
    unmerged: list[Unmerged] = field(default_factory=list)
    #: Whether the record at hand, and any before it, was given parts of a sequence.
    is_split: bool = False
    was_split: bool = False

    @property
    def parts(self) -> int:
        """Number of the ranks of a stage."""
        return math.prod(self.axes)

    @property
    def tokens(self) -> int:
        """Number of ranks with other tokens."""
        return math.prod(self.axes[:-1])


def make_whole(
    target: Dump, golden: Dump, axes: tuple[Axes, Axes], scale: float | None = 1.0
) -> tuple[Dump, Dump, list[Unmerged]]:
    """Return two runs with whole tensors in place of shards, and what could not be merged of either.

    ``axes`` is how many ranks each run has along each axis, tensor parallelism last; all 1 for one that is not merged.
    ``scale`` is by how much the target's gradients are a multiple of the golden run's before they are reduced; where it
    is None, the first gradients show it. Raises RecordError where a record is malformed, DumpError where a layout is
    not that of its run.
    """
    records = (dict(target.records), dict(golden.records))
    partners = _partners(target, golden)
    factor, first_scaled = _scale_of(records, partners, axes) if scale is None else (scale, "")
    sides = (_Side(axes[0], factor, _factors(axes)), _Side(axes[1]))
    if first_scaled:
        sides[0].unmerged.append(Unmerged(first_scaled, f"by {factor:g}", "scaled"))
    for ours, theirs in partners.items():
        names = (ours, theirs)
        texts = (bytes(records[0][ours]), bytes(records[1][theirs]))
        if texts[0] == texts[1] and not _has_shards(texts[0]) and sides[0].scale == 1:
            continue
        whole = _whole_record(texts, sides, names, (target, golden))
        for i in (0, 1):
            if sides[i].parts > 1 or sides[i].scale != 1 or _has_shards(texts[i]):
                records[i][names[i]] = msgspec.Raw(encode_record(whole[i]))
    for side, other, dump in zip(sides, reversed(sides), (target, golden), strict=True):
        if (
            side.tokens > 1 == other.tokens
            and not side.was_split
            and partners
            and any(map(_has_shards, map(bytes, dump.records.values())))
        ):
            raise DumpError(
                f"{dump.path}: no tensor of its ranks is a part of one of the other run, so they share no sequence; "
                "correct cp and ep, and leave them out for data parallel ranks"
            )
    for own, partnered in zip(records, ({*partners}, {*partners.values()}), strict=True):
        own |= _as_parts({name: raw for name, raw in own.items() if name not in partnered})
    merged = tuple(replace(dump, records=own) for dump, own in zip((target, golden), records, strict=True))
    return merged[0], merged[1], [*_accumulated(sides[0].unmerged), *_accumulated(sides[1].unmerged)]


def _whole_record(
    texts: Sequence[bytes], sides: Sequence[_Side], names: Sequence[str], dumps: Sequence[Dump] = ()
) -> list[Any]:
    """Return the bodies of two records with whole tensors in them."""
    bodies = [decode_record(name, text) for name, text in zip(names, texts, strict=True)]
    for i, (side, dump) in enumerate(zip(sides, dumps, strict=False)):
        side.is_split = False
        if side.tokens > 1 and not side.was_split and is_forward(names[0]):
            _require_divided((bodies[i], bodies[1 - i]), side, names[i], dump)
    return _whole(bodies, sides, names, "")


def _require_divided(bodies: Sequence[Any], side: _Side, name: str, dump: Dump) -> None:
    """Raise DumpError where the first tensor of a call is larger in the other run in a way that no ranks divide."""
    own, other = (next(_tensors(body), None) for body in bodies)
    if own is None or other is None or len(own["shape"]) != len(other["shape"]):
        return
    differing = [(a, b) for a, b in zip(own["shape"], other["shape"], strict=True) if a != b]
    if len(differing) == 1 and differing[0][0] < differing[0][1] and differing[0][1] % side.tokens:
        raise DumpError(
            f"{dump.path}: {name} has {own['shape']} on each rank and {other['shape']} in the other run, which "
            f"{side.tokens} ranks cannot share; correct cp and ep, or record both runs on sequences of one length"
        )


def _tensors(value: Any) -> Iterator[TensorBody]:
    if is_tensor(value):
        yield value
    elif isinstance(value, (dict, list)):
        for own in value.values() if isinstance(value, dict) else value:
            yield from _tensors(own)


def _scale_of(
    records: Sequence[Mapping[str, msgspec.Raw]], partners: Mapping[str, str], axes: tuple[Axes, Axes]
) -> tuple[float, str]:
    """Return by how much the target's gradients are a multiple of the golden run's, and the record that shows it.

    It is a number of ranks with other tokens, as where these average their gradients, and 1 where gradients are still
    that multiple after they were reduced.
    """
    candidates = _factors(axes)
    scale, shown = 1.0, ""
    for names in partners.items():
        texts = tuple(bytes(own[name]) for own, name in zip(records, names, strict=True))
        if is_forward(names[0]) or (shown and not _is_final(texts[0])):
            continue
        sides = (_Side(axes[0]), _Side(axes[1]))
        for ratio in _ratios(*_whole_record(texts, sides, names)):
            near = next((one for one in candidates if abs(ratio - one) <= _NEAR_FACTOR * one), 1.0)
            if shown:
                return (1.0, "") if near == scale else (scale, shown)
            if near == 1 or _is_final(texts[0]):
                return 1.0, ""
            scale, shown = near, names[0]
            break
    return scale, shown


def _factors(axes: tuple[Axes, Axes]) -> frozenset[float]:
    """Return how many times a gradient of one run may be that of the other: by numbers of ranks with other tokens."""
    ours, theirs = (
        [math.prod(some) for count in range(len(own)) for some in combinations(own[:-1], count)] for own in axes
    )
    ratios = {a / b for a in ours for b in theirs}
    return frozenset(ratios | {1 / ratio for ratio in ratios})


def _is_final(text: bytes) -> bool:
    return b'"final"' in text


def _ratios(ours: Any, theirs: Any) -> Iterator[float]:
    """Yield the ratios of the norms of tensors of several elements, those of which both are known and not 0."""
    if is_tensor(ours) and is_tensor(theirs):
        norms: list[Any] = [number_of(ours, "Norm"), number_of(theirs, "Norm")]
        if ours["shape"] == theirs["shape"] and math.prod(ours["shape"]) > 1 and all(map(_is_positive, norms)):
            yield norms[0] / norms[1]
    elif isinstance(ours, dict) and isinstance(theirs, dict):
        for key in ours.keys() & theirs.keys():
            yield from _ratios(ours[key], theirs[key])
    elif isinstance(ours, list) and isinstance(theirs, list):
        for own, other in zip(ours, theirs, strict=False):
            yield from _ratios(own, other)


def _is_positive(value: object) -> bool:
    return isinstance(value, (int, float)) and 0 < value < math.inf


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
    return b'"shards"' in raw or b'"shares"' in raw


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
        if all(value.get("type") in _SIZES for value in values):
            return _whole_sizes(values, sides)
        # Inputs come first, and say whether the call works on parts of a sequence.
        shared = [key for key in values[0] if key in values[1]]
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
        return {key: _alone(own) for key, own in value.items() if key != SHARES}
    return [_alone(own) for own in value] if isinstance(value, list) else value


def _without_values(element: TensorBody) -> TensorBody:
    """Return an element of which nothing is known but dtype and shape, so that it is not compared."""
    return {**without_shards(element), **dict.fromkeys(STATISTICS)}


def _whole_sizes(values: Sequence[Any], sides: Sequence[_Side]) -> list[Any]:
    """Return two integers or shapes, one for both where one is a part of the other: heads, as ``view`` takes them.

    Of other numbers on each rank, as those of tokens for an expert, it is the sum.
    """
    sums = [value.get(SHARES) for value in values]
    values = [{key: own for key, own in value.items() if key != SHARES} for value in values]
    sizes = [value.get("value") for value in values]
    added = [sizes[i] if own is None else own for i, own in enumerate(sums)]
    if added != sizes and added[0] == added[1]:
        return [{**value, "value": added[0]} for value in values]
    if all(isinstance(size, list) for size in sizes) and len(sizes[0]) == len(sizes[1]):
        wholes = [_whole_size(pair, sides) for pair in zip(*sizes, strict=True)]
        return [{**value, "value": [whole[i] for whole in wholes]} for i, value in enumerate(values)]
    return [{**value, "value": size} for value, size in zip(values, _whole_size(sizes, sides), strict=True)]


def _whole_size(sizes: Sequence[Any], sides: Sequence[_Side]) -> Sequence[Any]:
    if all(type(size) is int for size in sizes) and sizes[0] != sizes[1]:
        common = _multiples(sizes[0], sides[0].axes) & _multiples(sizes[1], sides[1].axes)
        if len(common) == 1:
            return [*common] * 2
    return sizes


def _multiples(size: int, axes: Axes) -> set[int]:
    """Return what a size of a rank may be of the whole."""
    return {size * math.prod(some) for count in range(len(axes) + 1) for some in combinations(axes, count)}


def _whole_tensors(
    elements: Sequence[TensorBody], sides: Sequence[_Side], names: Sequence[str], place: str
) -> list[Any]:
    averaged = [i for i in (0, 1) if elements[i].get(HELD) == "averaged"]
    if len(averaged) == 1:
        sides[averaged[0]].unmerged.append(Unmerged(names[averaged[0]], place, "averaged"))
        return [_without_values(element) for element in elements]
    shapes = [tuple(element["shape"]) for element in elements]
    if shapes[0] == shapes[1]:
        shards = [shards_of(element) for element in elements]
        if shards[0] and shards[1] and sides[0].axes == sides[1].axes:
            # Both runs split it alike, whatever it is.
            alike = _sums_of_numbers(shards, sides[0]) if math.prod(shapes[0]) == 1 and sides[0].tokens > 1 else None
            return _unscaled(alike or [_alone(element) for element in elements], sides[0], names[0])
        whole = [_distinct(element, side.axes) for element, side in zip(elements, sides, strict=True)]
        for i in (0, 1):
            if _are_equal_counts(elements[i], elements[1 - i], sides[i]):
                sides[i].unmerged.append(Unmerged(names[i], place, "unreduced"))
                return [_without_values(element) for element in elements]
    else:
        plans = [_plans(element, side.axes) for element, side in zip(elements, sides, strict=True)]
        common = sorted(plans[0].keys() & plans[1].keys())
        if not common:
            return [_alone(element) for element in elements]
        is_weight = is_parameters_grad(names[0]) or place.startswith("parameters.")
        whole = [
            _joined(element, side, own[common[0]], is_weight=is_weight)
            for element, side, own in zip(elements, sides, plans, strict=True)
        ]
        if "int" in whole[0]["dtype"] and are_same(whole[0], whole[1]):
            # A norm of parts is rounded in another order, and integers have to be equal.
            statistics = {key: whole[1][key] for key in STATISTICS if key in whole[1]}
            whole[0] = {**whole[0], **statistics}
        if _are_positions(whole, sides):
            sides[0].unmerged.append(Unmerged(names[0], place, "positions"))
            return [_without_values(element) for element in whole]
    copies = [_copy(whole[i], whole[1 - i], sides[i], names[i], place) for i in (0, 1)]
    return copies if elements[0].get(FINAL) else _unscaled(copies, sides[0], names[0])


def _sums_of_numbers(shards: Sequence[Sequence[TensorBody] | None], side: _Side) -> list[Any] | None:
    """Return elements of the sums of numbers that ranks of both runs have, as losses of other parts of the sequences.

    One run may have the mean over the tokens of a rank where the other has a share in the whole.
    """
    sums = [join(own, own[0]["shape"]) for own in shards if own]
    means: list[Any] = [number_of(element, "Mean") for element in sums]
    if None in means:
        return None
    means[0] = min((means[0] / factor for factor in side.factors), key=lambda mean: abs(mean - means[1]))
    numbers = [{"Max": mean, "Min": mean, "Mean": mean, "Norm": abs(mean)} for mean in means]
    return [{**element, **own} for element, own in zip(sums, numbers, strict=True)]


def _are_equal_counts(element: TensorBody, other: TensorBody, side: _Side) -> bool:
    """Return whether each rank counted as many of its tokens: the sum over ranks is what the other run has."""
    if side.tokens == 1 or "int" not in element["dtype"] or shards_of(element) or shards_of(other):
        return False
    ours, theirs = number_of(element, "Mean"), number_of(other, "Mean")
    return ours is not None and theirs is not None and ours != 0 and theirs == ours * side.tokens


def _are_positions(elements: Sequence[TensorBody], sides: Sequence[_Side]) -> bool:
    """Return whether integers of tokens differ as where each rank counts its own from 0: they end earlier."""
    if not all("int" in element["dtype"] and element["dtype"] == elements[0]["dtype"] for element in elements):
        return False
    most: list[Any] = [number_of(element, "Max") for element in elements]
    more_ranks = 0 if sides[0].tokens > sides[1].tokens else 1
    return sides[0].tokens != sides[1].tokens and None not in most and most[more_ranks] < most[1 - more_ranks]


def _unscaled(elements: list[Any], side: _Side, name: str) -> list[Any]:
    """Return two elements, a gradient of the target divided by what it is a multiple of the golden one.

    A single number may be before or behind the factor: it is that of a rank's own loss, or of its share in the whole.
    """
    if is_forward(name) or not all(map(is_tensor, elements)):
        return elements
    if math.prod(elements[0]["shape"]) == 1 and side.factors != {1}:
        shares = [scaled(elements[0], 1 / factor) for factor in side.factors]
        return [min(shares, key=lambda share: distance(share, elements[1])), elements[1]]
    if side.scale == 1:
        return elements
    divided = scaled(elements[0], 1 / side.scale)
    return [divided, elements[1]]


def _plans(element: TensorBody, axes: Axes) -> dict[Shape, list[Plan]]:
    """Return the shapes that a tensor may have as a whole: that of each rank, or larger in one dimension by an axis."""
    shape: Shape = tuple(element["shape"])
    if HELD in element:
        return {shape: []}
    shards = shards_of(element)
    axes = axes if shards is None else axes_of(len(shards), axes)
    shapes = [shape] * math.prod(axes) if shards is None else [tuple(shard["shape"]) for shard in shards]
    plans = defaultdict[Shape, list[Plan]](list)
    for plan in product(*((None, *range(len(shape))) if size > 1 else (None,) for size in axes)):
        whole = _shape_by(plan, shapes, axes)
        if whole is not None:
            plans[whole].append(plan)
    return plans


def _shape_by(plan: Plan, shapes: Sequence[Shape], axes: Axes) -> Shape | None:
    """Return the shape of the whole of parts of some shapes, None where they do not fit together in this way."""
    if not axes:
        return shapes[0]
    size, dim = len(shapes) // axes[0], plan[0]
    inner = [_shape_by(plan[1:], shapes[i : i + size], axes[1:]) for i in range(0, len(shapes), size)]
    fitting = [shape for shape in inner if shape is not None]
    if len(fitting) < len(inner) or len({shape if dim is None else _without(shape, dim) for shape in fitting}) > 1:
        return None
    first = fitting[0]
    return first if dim is None else (*first[:dim], sum(shape[dim] for shape in fitting), *first[dim + 1 :])


def _without(shape: Shape, dim: int) -> Shape:
    return shape[:dim] + shape[dim + 1 :]


def _joined(element: TensorBody, side: _Side, plans: Sequence[Plan], *, is_weight: bool) -> TensorBody:
    """Return the element of a whole by the plan that leaves the fewest values that differ between ranks.

    Where several do, ranks of one sequence hold parts of it, and those of tensor parallelism parts of a weight.
    """
    if not plans:
        return element
    shards = shards_of(element) or [element] * side.parts
    axes = axes_of(len(shards), side.axes)
    wholes = [(_by_plan(element, shards, axes, plan), plan) for plan in plans]
    whole, plan = min(wholes, key=lambda pair: (len(shards_of(pair[0]) or ()), (pair[1][-1] is None) == is_weight))
    if any(dim is not None for dim in plan[:-1]):
        side.is_split = side.was_split = True
    return whole


def _by_plan(element: TensorBody, shards: Sequence[TensorBody], axes: Axes, plan: Plan) -> TensorBody:
    """Return the parts of a tensor joined along the axes that the plan has a dimension for."""
    groups = defaultdict[tuple[int, ...], list[TensorBody]](list)
    for shard, place in zip(shards, product(*map(range, axes)), strict=True):
        groups[tuple(at for at, dim in zip(place, plan, strict=True) if dim is None)].append(shard)
    shape = _shape_by(plan, [tuple(shard["shape"]) for shard in shards], axes)
    assert shape is not None
    joined = [join(own, shape) if len(own) > 1 else own[0] for own in groups.values()]
    rest = tuple(size for size, dim in zip(axes, plan, strict=True) if dim is None)
    return _distinct({**merge_ranks(joined), **_fate(element)}, rest)


def _fate(element: TensorBody) -> dict[str, Any]:
    return {key: element[key] for key in (REDUCED, FINAL) if key in element}


def _distinct(element: TensorBody, axes: Axes) -> TensorBody:
    """Return the element with the shards of one rank alone along each axis where all are equal: these hold copies."""
    shards = shards_of(element)
    if shards is None or HELD in element:
        return element
    axes = axes if math.prod(axes) == len(shards) else axes_of(len(shards), axes)
    places = [*product(*map(range, axes))]
    for axis in range(len(axes)):
        if axes[axis] > 1 and not differ_along(shards, axes, axis):
            places = [place for place in places if place[axis] == 0]
    distinct = [shard for shard, place in zip(shards, product(*map(range, axes)), strict=True) if place in places]
    return {**merge_ranks(distinct), **_fate(element)}


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
    if is_known and side.tokens > 1 and HELD not in element and math.prod(element["shape"]) == 1:
        return _by_tokens(element, shards, other, side, name, place)
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
    return _without_values(element)


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


def _by_tokens(
    element: TensorBody, shards: Sequence[TensorBody], other: TensorBody, side: _Side, name: str, place: str
) -> Any:
    """Return the element of one number, as a loss, of which each rank has that of its own tokens.

    It is the sum or the mean of these. A mean by tokens, of which ranks may have other numbers, lies between them; then
    it is not compared. What is neither is wrong if the call adds up or averages parts of a sequence.
    """
    values = [number_of(shard, "Mean") for shard in shards]
    golden = number_of(other, "Mean")
    numbers = [value for value in values if value is not None]
    if golden is None or len(numbers) < len(shards) or not all(map(math.isfinite, (*numbers, golden))):
        return _without_values(element)
    nearest = min((sum(numbers), sum(numbers) / len(numbers)), key=lambda value: abs(value - golden))
    is_near = abs(nearest - golden) <= _ROUNDED_LOSS * abs(golden)
    is_reduction = split_called(name)[0].rpartition(".")[2] in _REDUCTIONS or split_called(name)[0].endswith("_loss")
    is_wrong = place.startswith("output") and is_forward(name) and is_reduction and side.is_split
    if is_near or (is_wrong and not min(numbers) <= golden <= max(numbers)):
        return {**without_shards(element), "Max": nearest, "Min": nearest, "Mean": nearest, "Norm": abs(nearest)}
    side.unmerged.append(Unmerged(name, place, "tokens"))
    return _without_values(element)
