"""The parts of a DTensor put together: its record has the shape of the whole, and the statistics of a rank's part.

``device_mesh`` is the mesh of ranks, and ``placements`` has an entry for each of its dimensions: along it ranks hold
parts (Shard), copies (Replicate) or addends (Partial) of a tensor.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from msprobe_hooks.dump.values import STATISTICS
from msprobe_hooks.extensions.merged_ranks.shard_statistics import HELD, SHARDS, TensorBody, are_same, is_tensor, join

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
        held = wholes.setdefault(variant, [])
        if not is_placed(part) or (part["shape"], part["placements"]) != (first["shape"], placements):
            wholes[variant] = None
        elif held is not None:
            held.append({**part, "shape": _local_shape(first["shape"], placements, sizes, place)})
    joined = [_undistributed(join(held, first["shape"])) for held in wholes.values() if held]
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
    kept = {key: value for key, value in element.items() if key not in ("device_mesh", "placements")}
    return {**kept, "type": "torch.Tensor"}


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
