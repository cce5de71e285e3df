"""The records of many ranks as those of one process: shards of a stage joined, stages in their order.

A stage, or each of its chunks where it has several, is a piece: pieces follow each other in a forward pass. Layers
count from 0 in each piece unless the training numbered them through, and calls of an API do in each process.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Final, TypeAlias

from msprobe_hooks.dump.communication.collectives import read_communicated
from msprobe_hooks.dump.communication.endpoints import group_ranks, reduction_of
from msprobe_hooks.dump.json_records import encode_record
from msprobe_hooks.dump.names import (
    forward_of,
    is_communication,
    is_forward,
    is_module_name,
    is_parameters_grad,
    split_called,
    split_module,
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

#: What the attributes that hold a model's layers are called.
_LAYERS: Final = frozenset({"layers", "layer", "h", "blocks", "block"})


@dataclass(frozen=True, slots=True)
class Reduction:
    """A sum over ranks: its place in the dump, what was given and what came of it, and who took part.

    ``is_shared``: all ranks of the stage, and others perhaps; ``is_own``: just they, and it is no average.
    """

    place: int
    given: TensorBody
    result: TensorBody
    is_shared: bool
    is_own: bool


@dataclass(frozen=True, slots=True)
class Reductions:
    """The sums that a rank reduced with others, by what was given to them.

    ``flat`` are vectors that the ranks of the stage reduced, in which there may be many tensors, and their places in
    the dump.
    """

    made: dict[Key, list[Reduction]] = field(default_factory=lambda: defaultdict(list))
    flat: list[tuple[int, TensorBody]] = field(default_factory=list)

    def result_of(self, part: TensorBody) -> TensorBody | None:
        """Return what became of a part of a sum that the ranks of the stage reduced."""
        found = (one for one in self.made.get(_key(part), ()) if one.is_own and _are_near(one.given, part))
        return next((one.result for one in found), None)

    def is_reduced(self, part: TensorBody, after: int) -> bool:
        """Return whether a part of a sum is reduced in a call that is recorded after this place in the dump."""
        if any(place > after and _may_hold(vector, part) for place, vector in self.flat):
            return True
        # What the data parallel ranks reduced first is another value by the time that this stage reduces it.
        while found := self._next(part, after):
            if found.is_shared:
                return True
            part, after = found.result, found.place
        return False

    def _next(self, part: TensorBody, after: int) -> Reduction | None:
        later = (one for one in self.made.get(_key(part), ()) if one.place > after and _are_near(one.given, part))
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
        found = [after for after in results if after is not None]
        if len(found) < len(results):
            return element
        if all(math.prod(after["shape"]) == math.prod(element["shape"]) for after in found):
            found = [{**after, "shape": element["shape"]} for after in found]
        if "requires_grad" in element:
            # Made where no gradients are tracked, in a function of autograd, it stands for a value that has one.
            found = [{**after, "requires_grad": element["requires_grad"]} for after in found]
        return merge_ranks(found)


def _within(parts: Mapping[int, Any], at: Any) -> dict[int, Any]:
    """Return what is at a key or an index in the parts that have it."""
    found = {}
    for rank, part in parts.items():
        try:
            found[rank] = part[at]
        except (LookupError, TypeError):
            continue
    return found


def reductions_of(dump: Dump, ranks: frozenset[int], world: frozenset[int]) -> Reductions:
    """Return the sums that a rank reduced with the others of its tensor parallel group.

    ``ranks`` are the group's; ``world`` are all there are, which a call means that names no group.
    """
    found = Reductions()
    for place, name in enumerate(dump.records):
        if not is_communication(name):
            continue
        try:
            body = dump.body(name)
            said = read_communicated(forward_record(name, body))
            given_at, returned_at = _REDUCTIONS[said.operation]
            given, returned = body["input_args"][given_at], body["output"][returned_at]
        except (RecordError, LookupError, TypeError, ValueError):
            continue
        group = frozenset(group_ranks(said.before.get("group"))) or world
        if reduction_of(said) not in _SUMS or not (is_tensor(given) and is_tensor(returned)):
            continue
        is_own = group == ranks and reduction_of(said) == "SUM"
        found.made[_key(given)].append(Reduction(place, given, returned, group >= ranks, is_own))
        if group >= ranks and len(given["shape"]) == 1:
            found.flat.append((place, given))
    return found


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
        found = _layer(self._whole_path(record.name))
        return None if found is None else (record.piece, found[0], found[1])

    def _whole_path(self, name: str) -> str:
        path = split_module(name).path
        return f"0.{path.partition('.')[2]}" if self._chunks and chunk_of(name) is not None else path

    def of(self, name: str, piece: int) -> str:
        if not is_module_name(name):
            return self._calls.get((piece, name), name)
        path = self._whole_path(name)
        found = _layer(path)
        if found is not None:
            before, number, rest = found
            path = f"{before}.{number + self._first.get((piece, before), 0)}{rest}"
        return str(split_module(name)._replace(path=path))


def _layer(path: str) -> tuple[str, int, str] | None:
    """Split an attribute path at its first layer: the path before its number, the number, and the rest with its dot."""
    words = path.split(".")
    for i, (word, number) in enumerate(pairwise(words)):
        if word in _LAYERS and number.isascii() and number.isdigit() and len(number) < 10:
            return ".".join(words[: i + 1]), int(number), "".join(f".{rest}" for rest in words[i + 2 :])
    return None


def _first_layers(numbered: Iterable[tuple[int, str, int] | None]) -> Mapping[tuple[int, str], int]:
    """Return by how much the layers of a piece move up, by piece and path.

    Pieces in which one number is twice count from 0 each; where no number is, the training numbered them through.
    """
    layers = defaultdict[str, dict[int, set[int]]](lambda: defaultdict(set))
    for found in numbered:
        if found is not None:
            piece, path, number = found
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
    found: dict[str, int] = {}
    latest = {True: 0, False: 0}
    for name in names:
        forward = is_forward(name)
        top = None if name in recomputed else top_of.get(name)
        if top is not None:
            latest[forward] = call_number(top)
        elif is_parameters_grad(name) and name.rpartition(".")[2].isdigit():
            latest[forward] = call_number(name)
        elif not forward and forward_of(name) in found:
            latest[forward] = found[forward_of(name)]
        found[name] = latest[forward]
    return found
