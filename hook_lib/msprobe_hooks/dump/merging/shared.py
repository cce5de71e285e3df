"""The records of the ranks that share the tensors of a stage as one record."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from msprobe_hooks.dump.merging.tensors import SHARDS, STATISTICS, is_tensor, merge_ranks, number_of
from msprobe_hooks.dump.reader import Dump
from msprobe_hooks.errors import RecordError

#: What became of the sums that a rank had a part of: the element after the reduction by what was given to it.
Sums: TypeAlias = Mapping[tuple[Any, ...], Any]

# The places of a reduction's input and output among its arguments.
_REDUCTIONS = {
    "all_reduce": (0, 0),
    "reduce_scatter_tensor": (1, 0),
    "_reduce_scatter_base": (1, 0),
}


def merge_shared(bodies: Sequence[Any], sums: Sequence[Sums]) -> Any:
    """Return one body for those that the ranks recorded of one call, with ``shards`` where ranks hold other values.

    Where each rank returned a part of a sum that it then reduced, what the reduction gave stands for it. Plain values
    are those of the first rank.
    """
    merged = _merged(bodies)
    outputs: list[Any] = [body.get("output") if isinstance(body, dict) else None for body in bodies]
    if isinstance(merged, dict) and all(isinstance(output, list) for output in outputs):
        merged["output"] = [
            _after_reduction(element, parts, sums)
            for element, parts in zip(merged["output"], zip(*outputs, strict=False), strict=False)
        ]
    return merged


def _merged(parts: Sequence[Any]) -> Any:
    first = parts[0]
    if all(map(is_tensor, parts)):
        return merge_ranks(parts)
    if all(isinstance(part, dict) and part.keys() == first.keys() for part in parts):
        return {key: _merged([part[key] for part in parts]) for key in first}
    if all(isinstance(part, list) and len(part) == len(first) for part in parts):
        return [_merged(members) for members in zip(*parts, strict=True)]
    return first


def _after_reduction(element: Any, parts: Sequence[Any], sums: Sequence[Sums]) -> Any:
    if not isinstance(element, dict) or SHARDS not in element:
        return element
    found = [after.get(_key(part)) for part, after in zip(parts, sums, strict=True)]
    return _merged(found) if None not in found else element


def sums_of(dump: Dump, ranks: Sequence[int], *, are_all: bool) -> Sums:
    """Return what became of the sums that a rank reduced with the others of its tensor parallel group.

    ``are_all``: the group's ``ranks`` are all there are, so that a call that names no group means it.
    """
    found: dict[tuple[Any, ...], Any] = {}
    for name in dump.records:
        places = _REDUCTIONS.get(name.split(".")[1]) if name.startswith("Distributed.") else None
        if places is None or not name.endswith(".forward"):
            continue
        try:
            body = dump.body(name)
            group = next((_ranks_of(value) for value in _arguments(body) if _ranks_of(value) is not None), None)
            is_sum = all("SUM" in str(value.get("value")) for value in _arguments(body) if _is_operation(value))
            given, result = body["input_args"][places[0]], body["output"][places[1]]
        except (RecordError, LookupError, TypeError, AttributeError):
            continue
        is_ours = are_all if group is None else group == sorted(ranks)
        if is_ours and is_sum and is_tensor(given) and is_tensor(result):
            found[_key(given)] = result
    return found


def _arguments(body: Any) -> Iterator[Any]:
    yield from body["input_args"]
    yield from body["input_kwargs"].values()


def _ranks_of(value: Any) -> list[int] | None:
    return sorted(value["group_ranks"]) if isinstance(value, dict) and value.get("group_ranks") else None


def _is_operation(value: Any) -> bool:
    return isinstance(value, dict) and str(value.get("type", "")).endswith("ReduceOp")


def _key(element: Any) -> tuple[Any, ...]:
    return element["dtype"], *element["shape"], *(number_of(element, name) for name in STATISTICS)
