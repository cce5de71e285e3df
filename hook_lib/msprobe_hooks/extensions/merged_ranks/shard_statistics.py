"""Statistics of whole tensors from those of shards, by rank or by a DTensor's placements.

An element is the JSON object of the file. What one for several ranks cannot say yet, because only another run shows
whether they hold parts of a tensor or copies of it, it keeps as ``shards``: the elements of the ranks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from msprobe_hooks.dump.memory_layouts import LAYOUT_KEYS
from msprobe_hooks.dump.schema import NONFINITE_COUNTS
from msprobe_hooks.dump.values import NON_FINITE, STATISTICS, TOO_LARGE, Number, is_number

#: A tensor's element as the file has it.
TensorBody: TypeAlias = Mapping[str, Any]

#: How many ranks there are along each axis on which those of a stage are ordered; the last one varies fastest.
Axes: TypeAlias = tuple[int, ...]

_FINITE: Final = {"Max": "Max_except_inf_nan", "Min": "Min_except_inf_nan"}
SHARDS: Final = "shards"
#: What the shards are where the record says it: ``copies`` or addends of a ``sum``; ``unknown`` where they are missing,
#: ``averaged`` where there are none, but the tensor is a gradient after its reduction over data parallel ranks.
HELD: Final = "held"
#: Whether a later call reduces the shards.
REDUCED: Final = "reduced"
#: Of an integer: the sum of those of the ranks with other tokens, where these differ.
SHARES: Final = "shares"
#: Of a gradient: that it is what the ranks' parts became when they were reduced.
FINAL: Final = "final"
#: What the parts do not show of a whole, or belongs to one rank alone.
_OF_ONE_RANK: Final = frozenset(
    ("md5", "data_name", "datapath", SHARDS, HELD, REDUCED, FINAL, *LAYOUT_KEYS, *_FINITE.values(), *NONFINITE_COUNTS)
)

# Copies of one tensor may be computed by other kernels on each rank; msprobe 26 takes this for equal as well.
_SAME = 1e-6


def is_tensor(element: object) -> bool:
    """Return whether a part of a record is a tensor's element."""
    if not isinstance(element, Mapping) or not isinstance(element.get("dtype"), str):
        return False
    shape = element.get("shape")
    return isinstance(shape, list) and all(type(size) is int and 0 <= size < TOO_LARGE for size in shape)


def shards_of(element: TensorBody) -> list[TensorBody] | None:
    """Return the elements of the ranks where they are not equal."""
    shards = element.get(SHARDS)
    if not isinstance(shards, list) or not shards or not all(map(is_tensor, shards)):
        return None
    return shards if all(len(shard["shape"]) == len(element["shape"]) for shard in shards) else None


def number_of(element: TensorBody, key: str) -> Number | None:
    """Return a statistic of an element; None where it has none, or a word for it."""
    value = element.get(key)
    if isinstance(value, str):
        value = NON_FINITE.get(value)
    return value if is_number(value) else None


def merge_ranks(elements: Sequence[TensorBody]) -> dict[str, Any]:
    """Return the element for those of the ranks that share a tensor: one of them where all are equal.

    The first is used for tensors of other numbers of dimensions, which are not parts of one.
    """
    first = {key: value for key, value in elements[0].items() if key not in _OF_ONE_RANK}
    if all(are_same(element, elements[0]) for element in elements[1:]):
        return first
    if any(len(element["shape"]) != len(elements[0]["shape"]) for element in elements):
        return first
    return {**first, SHARDS: list(elements)}


def axes_of(count: int, axes: Axes) -> Axes:
    """Return the axes of what fewer ranks recorded than there are: those of an expert, which share its tensors."""
    if math.prod(axes) == count:
        return axes
    shared = axes[-1] if axes and count % axes[-1] == 0 else count
    return (count // shared, shared)


def line_along(axes: Axes, axis: int, place: int) -> range:
    """Return the places that differ from one along an axis alone, in their order."""
    stride = math.prod(axes[axis + 1 :])
    first = place - place // stride % axes[axis] * stride
    return range(first, first + stride * axes[axis], stride)


def differ_along(elements: Sequence[TensorBody], axes: Axes, axis: int) -> bool:
    """Return whether elements, one for each place, are not equal along an axis."""
    lines = {line_along(axes, axis, place) for place in range(len(elements))}
    return not all(are_same(elements[place], elements[line[0]]) for line in lines for place in line[1:])


def without_shards(element: TensorBody) -> dict[str, Any]:
    """Return an element without what it says of its shards."""
    return {key: value for key, value in element.items() if key not in (SHARDS, HELD, REDUCED, FINAL)}


def scaled(element: TensorBody, factor: float) -> dict[str, Any]:
    """Return the element of a tensor times a positive number."""
    numbers = {key: number_of(element, key) for key in (*STATISTICS, *_FINITE.values()) if key in element}
    products = {key: value * factor for key, value in numbers.items() if value is not None and math.isfinite(value)}
    return {**element, **products}


def join(parts: Sequence[TensorBody], shape: Sequence[int]) -> dict[str, Any]:
    """Return the element of the tensor of a shape that the parts make up.

    Mean is that of all elements, Norm the root of the sum of squares; what a part that is not empty lacks is None.
    """
    filled = [part for part in parts if 0 not in part["shape"]] or parts[:1]
    merged = {key: value for key, value in parts[0].items() if key not in _OF_ONE_RANK}
    merged["shape"] = list(shape)
    for key, of_all in (("Max", max), ("Min", min)):
        merged[key] = _extremum(of_all, [number_of(part, key) for part in filled])
        if any(_FINITE[key] in part for part in filled):
            finite = [number_of(part, _FINITE[key] if _FINITE[key] in part else key) for part in filled]
            numbers = [value for value in finite if value is not None and not math.isnan(value)]
            merged[_FINITE[key]] = of_all(numbers, default=math.nan)
    merged |= _counts(filled)
    merged["Mean"] = _mean(filled)
    merged["Norm"] = _norm([number_of(part, "Norm") for part in filled])
    return merged


def _counts(parts: Sequence[TensorBody]) -> dict[str, int]:
    """Return how many elements are NaN, +inf and -inf; nothing where a part has some and does not say how many."""
    some = [part for part in parts if not all(_is_finite(number_of(part, key)) for key in _FINITE)]
    counts = {key: [number_of(part, key) for part in some] for key in NONFINITE_COUNTS}
    if not some or any(type(count) is not int for values in counts.values() for count in values):
        return {}
    return {key: sum(int(count or 0) for count in values) for key, values in counts.items()}


def _extremum(of_all: Any, values: Sequence[Any]) -> Any:
    if None in values:
        return None
    # The extremum of a tensor that holds NaN is NaN.
    return next((value for value in values if value != value), None) or of_all(values)


def _mean(parts: Sequence[TensorBody]) -> float | None:
    sizes = [math.prod(part["shape"]) for part in parts]
    means: list[Any] = [number_of(part, "Mean") for part in parts]
    if None in means or not sum(sizes):
        return None
    return float(sum(size / sum(sizes) * mean for size, mean in zip(sizes, means, strict=True)))


def _norm(norms: Sequence[Any]) -> float | None:
    if None in norms:
        return None
    # hypot takes inf for more than NaN.
    return math.nan if any(map(math.isnan, norms)) else math.hypot(*norms)


def are_same(element: TensorBody, other: TensorBody) -> bool:
    """Return whether two elements are of copies of one tensor."""
    return are_alike(element, other, _SAME)


def are_alike(element: TensorBody, other: TensorBody, tolerance: float) -> bool:
    """Return whether two elements are of one tensor, up to a fraction of its own scale."""
    if element["shape"] != other["shape"] or element["dtype"] != other["dtype"]:
        return False
    return distance(element, other) <= tolerance


def distance(element: TensorBody, other: TensorBody) -> float:
    """Return how far the statistics of two elements are apart, as a fraction of their scale; inf where not comparable.

    The scale is the largest magnitude, that of a norm the norm.
    """
    ours: list[Any] = [number_of(element, key) for key in STATISTICS]
    theirs: list[Any] = [number_of(other, key) for key in STATISTICS]
    if ours == theirs:
        return 0.0
    scale = max((abs(x) for x in (*ours[:2], *theirs[:2]) if _is_finite(x)), default=0.0)
    return max(
        _difference(a, b, max(abs(a), abs(b)) if i == 3 and _is_finite(a) and _is_finite(b) else scale)
        for i, (a, b) in enumerate(zip(ours, theirs, strict=True))
    )


def _difference(a: Any, b: Any, scale: float) -> float:
    if a == b or (a != a and b != b):
        return 0.0
    return abs(a - b) / scale if _is_finite(a) and _is_finite(b) and scale else math.inf


def _is_finite(value: Any) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value)


#: The text by which a record that holds a DTensor is known.
MARK: Final = b'"placements"'

_SHARDED: Final = frozenset({"Shard", "StridedShard"})
_COPIED: Final = "Replicate"

#: The place of a rank in a mesh, or the sizes of a mesh.
Place: TypeAlias = tuple[int, ...]


def is_placed(element: object) -> bool:
    """Return whether a part of a record is a DTensor whose mesh and placements can be read."""
    if not isinstance(element, Mapping) or not is_tensor(element):
        return False
    mesh, placements = element.get("device_mesh"), element.get("placements")
    sizes = _mesh_sizes(mesh)
    if sizes is None or not isinstance(placements, list) or len(placements) != len(sizes):
        return False
    dimensions = len(element["shape"])
    return all(
        isinstance(placement, dict)
        and len(placement) == 1
        and all(isinstance(fields, dict) for fields in placement.values())
        and (_kind(placement) not in _SHARDED or _dim(placement) in range(dimensions))
        for placement in placements
    )


def ranks_in(value: Any) -> set[int]:
    """Return the ranks of the meshes of all DTensors in a part of a record."""
    if isinstance(value, dict):
        own = {rank for _, rank in _places(value["device_mesh"])} if is_placed(value) else set[int]()
        return own.union(*map(ranks_in, value.values()))
    return set[int]().union(*map(ranks_in, value)) if isinstance(value, list) else set()


def merge_placed(parts: Mapping[int, Any], own: int) -> dict[str, Any]:
    """Return the element of a DTensor by those of its ranks; ``own`` is one of them.

    Where ranks hold addends, or copies that are not equal, ``shards`` are the elements of these, each as large as the
    whole, and ``held`` says which: ``sum`` or ``copies``. It is ``unknown`` where the record of a rank is missing.
    """
    first = parts[own]
    sizes, placements = _mesh_sizes(first["device_mesh"]), first["placements"]
    assert sizes is not None
    wholes: dict[Place, list[TensorBody] | None] = {}
    for place, rank in _places(first["device_mesh"]):
        # Ranks that differ only along dimensions of Shard hold one tensor together.
        variant = tuple(at for at, one in zip(place, placements, strict=True) if _kind(one) not in _SHARDED)
        part: Any = parts.get(rank)
        shards = wholes.setdefault(variant, [])
        if not is_placed(part) or (part["shape"], part["placements"]) != (first["shape"], placements):
            wholes[variant] = None
        elif shards is not None:
            shards.append({**part, "shape": _local_shape(first["shape"], placements, sizes, place)})
    joined = [_undistributed(join(shards, first["shape"])) for shards in wholes.values() if shards]
    is_sum = any(
        _kind(one) not in {*_SHARDED, _COPIED} and size > 1 for one, size in zip(placements, sizes, strict=True)
    )
    if not joined or (is_sum and len(joined) < len(wholes)):
        return {**_undistributed(first), **dict.fromkeys(STATISTICS), SHARDS: [], HELD: "unknown"}
    if is_sum:
        return {**joined[0], SHARDS: joined, HELD: "sum"}
    if all(are_same(one, joined[0]) for one in joined):
        return joined[0]
    return {**joined[0], SHARDS: joined, HELD: "copies"}


def _undistributed(element: TensorBody) -> dict[str, Any]:
    entries = {key: value for key, value in element.items() if key not in ("device_mesh", "placements")}
    return {**entries, "type": "torch.Tensor"}


def _kind(placement: Mapping[str, Any]) -> str:
    return next(iter(placement)).lstrip("_")


def _dim(placement: Mapping[str, Any]) -> int:
    dim = next(iter(placement.values())).get("dim")
    return dim if type(dim) is int else -1


def _mesh_sizes(mesh: object) -> Place | None:
    """Return the sizes of a nested list of ranks, None where it is not regular."""
    if type(mesh) is int:
        return ()
    if not isinstance(mesh, list) or not mesh:
        return None
    inner = {_mesh_sizes(one) for one in mesh}
    first = inner.pop()
    return None if inner or first is None else (len(mesh), *first)


def _places(mesh: Any, place: Place = ()) -> Iterator[tuple[Place, int]]:
    if isinstance(mesh, list):
        for at, one in enumerate(mesh):
            yield from _places(one, (*place, at))
    else:
        yield place, mesh


def _local_shape(shape: Sequence[int], placements: Sequence[Any], sizes: Place, place: Place) -> list[int]:
    """Return the shape of a rank's part, which the dimensions of a mesh divide one after the other."""
    local = list(shape)
    for placement, size, at in zip(placements, sizes, place, strict=True):
        if _kind(placement) in _SHARDED:
            dim = _dim(placement)
            chunk = -(-local[dim] // size)
            local[dim] = max(min(chunk, local[dim] - at * chunk), 0)
    return local
