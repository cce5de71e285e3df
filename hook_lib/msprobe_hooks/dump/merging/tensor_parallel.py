"""The records of the ranks that share the tensors of a stage as one record, with the sums that they reduced."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from msprobe_hooks.dump.communication.collectives import read_communicated
from msprobe_hooks.dump.communication.endpoints import group_ranks, reduction_of
from msprobe_hooks.dump.merging.shard_statistics import SHARDS, is_tensor, merge_ranks, number_of
from msprobe_hooks.dump.names import is_communication
from msprobe_hooks.dump.reader import Dump
from msprobe_hooks.dump.schema import forward_record, record_path
from msprobe_hooks.dump.values import STATISTICS
from msprobe_hooks.errors import RecordError
from msprobe_hooks.json_decoding import JsonError, decode_json

#: What became of the sums that a rank had a part of: the element after the reduction by what was given to it.
Sums: TypeAlias = Mapping[tuple[Any, ...], Any]

# By operation, the place of what is given among the arguments, and of what is returned among those after the call.
_REDUCTIONS = {"all_reduce": (0, 0), "reduce_scatter_tensor": (1, 0)}


def merge_shared(bodies: Sequence[Any], sums: Sequence[Sums]) -> Any:
    """Return one body for those that the ranks recorded of one call, with ``shards`` where ranks hold other values.

    Where each rank returned a part of a sum that it then reduced, the result of the reduction is used. Plain values
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


def sums_of(dump: Dump, ranks: frozenset[int], world: frozenset[int]) -> Sums:
    """Return what became of the sums that a rank reduced with the others of its tensor parallel group.

    ``ranks`` are the group's; ``world`` are all there are, which a call means that names no group.
    """
    found: dict[tuple[Any, ...], Any] = {}
    for name in filter(is_communication, dump.records):
        try:
            body = dump.body(name)
            said = read_communicated(forward_record(name, body))
            given_at, returned_at = _REDUCTIONS[said.operation]
            given, returned = body["input_args"][given_at], body["output"][returned_at]
        except (RecordError, LookupError, TypeError, ValueError):
            continue
        is_ours = (frozenset(group_ranks(said.before.get("group"))) or world) == ranks
        if is_ours and reduction_of(said) == "SUM" and is_tensor(given) and is_tensor(returned):
            found[_key(given)] = returned
    return found


def _key(element: Any) -> tuple[Any, ...]:
    return element["dtype"], *element["shape"], *(number_of(element, name) for name in STATISTICS)


def decode_record(name: str, text: bytes) -> dict[str, Any]:
    """Return the body of a record. Raises RecordError where it is no JSON object."""
    try:
        body = decode_json(text)
    except JsonError as error:
        raise RecordError(record_path(name), str(error)) from None
    if not isinstance(body, dict):
        raise RecordError(record_path(name), "expected an object")
    return body
