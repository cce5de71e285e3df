"""Calls outside of all modules, and the module that they belong to: what computes their inputs, or consumes them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from msprobe_hooks.dump.names import is_forward, is_module_name
from msprobe_hooks.dump.reader import Dump
from msprobe_hooks.dump.values import STATISTICS
from msprobe_hooks.errors import RecordError
from msprobe_hooks.extensions.merged_ranks.shard_statistics import is_tensor, number_of

#: What a recorded tensor is recognised by in another record.
_Key: TypeAlias = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class _Flow:
    """The tensors that a call was given, and those that it returned."""

    given: frozenset[_Key]
    made: frozenset[_Key]


def place_outside_calls(dump: Dump, names: Sequence[str], tops: Mapping[str, str]) -> dict[str, str]:
    """Return a module for forward calls that were made outside of all modules; ``tops`` are the outermost of the rest.

    What is computed from the output of a module, such as a loss, belongs to it. What is not, such as the slice of a
    micro batch, belongs to the first that consumes it, directly or by way of other calls.
    """
    outermost = [name for name in names if is_forward(name) and _is_outermost(name, tops)]
    outside = [name for name in outermost if name not in tops]
    if not outside or len({top.rpartition(".")[2] for name, top in tops.items() if is_forward(name)}) < 2:
        return {}
    flows = {name: _flow(dump, name) for name in outermost if name in dump.records and not dump.is_recomputed(name)}
    placed: dict[str, str] = {}
    made: dict[_Key, str] = {}
    order = {name: place for place, name in enumerate(names)}
    for name, flow in flows.items():
        top = tops.get(name) or max((made[key] for key in flow.given if key in made), key=order.__getitem__, default="")
        if name not in tops and top:
            placed[name] = top
        made |= dict.fromkeys(flow.made, top) if top else {}
    consumers: dict[_Key, str] = {}
    for name, flow in reversed(flows.items()):
        top = tops.get(name) or placed.get(name, "")
        found = [consumers[key] for key in flow.made if key in consumers]
        if not top and found:
            top = placed[name] = min(found, key=order.__getitem__)
        consumers |= dict.fromkeys(flow.given, top) if top else {}
    return placed


def _is_outermost(name: str, tops: Mapping[str, str]) -> bool:
    return tops.get(name) == name if is_module_name(name) else name not in tops


def _flow(dump: Dump, name: str) -> _Flow:
    try:
        body = dump.body(name)
    except RecordError:
        body = {}
    given = [body.get(key) for key in ("input_args", "input_kwargs")] if isinstance(body, dict) else []
    made = body.get("output") if isinstance(body, dict) else None
    return _Flow(frozenset(_keys(given)), frozenset(_keys(made)))


def _keys(value: Any) -> Iterator[_Key]:
    if is_tensor(value):
        numbers = [number_of(value, name) for name in STATISTICS]
        checksum = value.get("md5")
        # Zeros, ones and the like are in many places.
        is_distinctive = value["shape"] == [] or numbers[0] != numbers[1]
        if checksum is not None or (None not in numbers and is_distinctive):
            yield value["dtype"], *value["shape"], checksum, *numbers
    elif isinstance(value, dict):
        for own in value.values():
            yield from _keys(own)
    elif isinstance(value, list):
        for own in value:
            yield from _keys(own)
