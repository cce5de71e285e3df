"""The records of pipeline stages in the order in which one process would have made them, under the names it would give.

A stage, or each of its chunks where it has several, is a piece: pieces follow each other in a forward pass. Layers
count from 0 in each piece unless the training numbered them through, and calls of an API do in each process.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final, TypeAlias

from msprobe_hooks.dump.json_records import encode_record
from msprobe_hooks.dump.names import (
    forward_of,
    is_forward,
    is_module_name,
    is_parameters_grad,
    split_called,
    split_module,
)
from msprobe_hooks.dump.reader import Dump
from msprobe_hooks.dump.values import STATISTICS
from msprobe_hooks.errors import RecordError
from msprobe_hooks.extensions.merged_ranks.shard_statistics import is_tensor, number_of
from msprobe_hooks.extensions.merged_ranks.tensor_parallel import decode_record

#: What the attributes that hold a model's layers are called.
_LAYERS: Final = frozenset({"layers", "layer", "h", "blocks", "block"})


@dataclass(frozen=True, slots=True)
class Recorded:
    """A record of one stage, with its call context.

    ``body`` is its JSON, None where there is none but a place in the tree of modules; ``piece`` is the stage's place,
    or that of its chunk, in a forward pass, ``micro`` the micro step that it is of.
    """

    name: str
    body: bytes | None
    piece: int
    micro: int
    parent: str | None = None
    stack: tuple[str, ...] | None = None


def call_number(module: str) -> int:
    """Return which call of a module a record is of, 0 where its name does not say it."""
    last = module.rpartition(".")[2]
    return int(last) if last.isascii() and last.isdigit() and len(last) < 10 else 0


def chunk_of(module: str) -> int | None:
    """Return the number of the model chunk that a module is in, as ``Module.1.layers.0``; None where it names none."""
    number = split_module(module).path.partition(".")[0]
    return int(number) if number.isascii() and number.isdigit() and len(number) < 10 else None


def one_process(records: Iterable[Recorded], *, chunks: bool) -> Iterator[Recorded]:
    """Yield the records of all pieces as those of one process, modules around several of them once.

    Micro steps follow each other, in each the pieces forward and then backward, whatever order the schedule had.
    ``chunks``: the models of stages are lists of chunks, which become the first.
    """
    ordered = sorted(records, key=_turn)
    names = _Names(ordered, chunks=chunks)
    merged: dict[str, Recorded] = {}
    for record in ordered:
        name = names.of(record.name, record.piece)
        parent = None if record.parent is None else names.of(record.parent, record.piece)
        renamed = replace(record, name=name, parent=parent)
        # What ran in several pieces ends where the last of them did.
        former = merged.pop(name, None)
        merged[name] = renamed if former is None else _around(former, renamed)
    yield from merged.values()


def _turn(record: Recorded) -> tuple[int, bool, int]:
    forward = is_forward(record.name)
    return record.micro, not forward, record.piece if forward else -record.piece


def _around(former: Recorded, later: Recorded) -> Recorded:
    """Return the record of a module around pieces: it was given what the first was, and gave what the last did."""
    if former.body is None or later.body is None:
        return replace(later, body=former.body or later.body, stack=former.stack)
    first, last = decode_record(former.name, former.body), decode_record(later.name, later.body)
    body = {**first, **last}
    body |= {key: first[key] for key in ("input_args", "input_kwargs", "input") if key in first}
    if "parameters" in body:
        body["parameters"] = {**(first.get("parameters") or {}), **(last.get("parameters") or {})}
    return replace(later, body=encode_record(body), stack=former.stack)


class _Names:
    """Names of the records of pieces in one process."""

    def __init__(self, ordered: Iterable[Recorded], *, chunks: bool) -> None:
        self._chunks = chunks
        ordered = list(ordered)
        self._first = _first_layers(self._numbered(record) for record in ordered if is_module_name(record.name))
        self._calls = _new_calls(ordered)

    def _numbered(self, record: Recorded) -> tuple[int, str, int] | None:
        layer = numbered_part(self._whole_path(record.name), _LAYERS)
        return None if layer is None else (record.piece, layer[0], layer[1])

    def _whole_path(self, name: str) -> str:
        path = split_module(name).path
        return f"0.{path.partition('.')[2]}" if self._chunks and chunk_of(name) is not None else path

    def of(self, name: str, piece: int) -> str:
        if not is_module_name(name):
            return self._calls.get((piece, name), name)
        path = self._whole_path(name)
        layer = numbered_part(path, _LAYERS)
        if layer is not None:
            before, number, rest = layer
            path = f"{before}.{number + self._first.get((piece, before), 0)}{rest}"
        return str(split_module(name)._replace(path=path))


def numbered_part(path: str, containers: Collection[str]) -> tuple[str, int, str] | None:
    """Split an attribute path at the first number in one of some containers, as that of a layer in ``layers``.

    Returns the path before the number, the number, and the rest with its dot.
    """
    words = path.split(".")
    for i, (word, number) in enumerate(pairwise(words)):
        if word in containers and number.isascii() and number.isdigit() and len(number) < 10:
            return ".".join(words[: i + 1]), int(number), "".join(f".{rest}" for rest in words[i + 2 :])
    return None


def _first_layers(numbered: Iterable[tuple[int, str, int] | None]) -> Mapping[tuple[int, str], int]:
    """Return by how much the layers of a piece move up, by piece and path.

    Pieces in which one number is twice count from 0 each; where no number is, the training numbered them through.
    """
    layers = defaultdict[str, dict[int, set[int]]](lambda: defaultdict(set))
    for layer in numbered:
        if layer is not None:
            piece, path, number = layer
            layers[path][piece].add(number)
    first: dict[tuple[int, str], int] = {}
    for path, pieces in layers.items():
        if sum(map(len, pieces.values())) == len(set[int]().union(*pieces.values())):
            continue
        count = 0
        for piece in sorted(pieces):
            first[piece, path] = count
            count += max(pieces[piece]) + 1
    return first


def _new_calls(ordered: Iterable[Recorded]) -> dict[tuple[int, str], str]:
    """Return names with the calls of each API numbered through; a backward record has its forward one's number."""
    counts = defaultdict[str, int](int)
    keys: dict[tuple[int, str], int] = {}
    names: dict[tuple[int, str], str] = {}
    for record in ordered:
        called, rest = split_called(record.name)
        if is_module_name(record.name) or rest.count(".") != 2:
            continue
        key = (record.piece, forward_of(record.name))
        if key not in keys:
            keys[key] = counts[called]
            counts[called] += 1
        names[record.piece, record.name] = f"{called}.{keys[key]}.{rest.rpartition('.')[2]}"
    return names


def micro_steps(names: Iterable[str], top_of: Mapping[str, str], recomputed: Collection[str]) -> dict[str, int]:
    """Return the micro step of each record of a stage, in recorded order.

    It is the number of the call of the outermost module around it, or that it belongs to, which ``top_of`` gives; what
    belongs to none, or is among the ``recomputed``, has that of the record before it.
    """
    steps: dict[str, int] = {}
    latest = {True: 0, False: 0}
    for name in names:
        forward = is_forward(name)
        top = None if name in recomputed else top_of.get(name)
        if top is not None:
            latest[forward] = call_number(top)
        elif is_parameters_grad(name) and name.rpartition(".")[2].isdigit():
            latest[forward] = call_number(name)
        elif not forward and forward_of(name) in steps:
            latest[forward] = steps[forward_of(name)]
        steps[name] = latest[forward]
    return steps


#: What a recorded tensor is recognised by in another record.
_Key: TypeAlias = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class _Flow:
    """The tensors that a call was given, and those that it returned."""

    inputs: frozenset[_Key]
    outputs: frozenset[_Key]


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
    makers: dict[_Key, str] = {}
    order = {name: place for place, name in enumerate(names)}
    for name, flow in flows.items():
        top = tops.get(name) or max(
            (makers[key] for key in flow.inputs if key in makers), key=order.__getitem__, default=""
        )
        if name not in tops and top:
            placed[name] = top
        makers |= dict.fromkeys(flow.outputs, top) if top else {}
    consumers: dict[_Key, str] = {}
    for name, flow in reversed(flows.items()):
        top = tops.get(name) or placed.get(name, "")
        tops_of_consumers = [consumers[key] for key in flow.outputs if key in consumers]
        if not top and tops_of_consumers:
            top = placed[name] = min(tops_of_consumers, key=order.__getitem__)
        consumers |= dict.fromkeys(flow.inputs, top) if top else {}
    return placed


def _is_outermost(name: str, tops: Mapping[str, str]) -> bool:
    return tops.get(name) == name if is_module_name(name) else name not in tops


def _flow(dump: Dump, name: str) -> _Flow:
    try:
        body = dump.body(name)
    except RecordError:
        body = {}
    inputs = [body.get(key) for key in ("input_args", "input_kwargs")] if isinstance(body, dict) else []
    outputs = body.get("output") if isinstance(body, dict) else None
    return _Flow(frozenset(_keys(inputs)), frozenset(_keys(outputs)))


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
