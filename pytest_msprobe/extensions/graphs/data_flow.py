"""The data flow of a recorded run: outputs that are inputs of other calls, found by their content.

A dump does not say it. What it says of tensors, checksums or statistics, shows which are the same: the nearest earlier
call that returned a tensor gave it. In backward the gradients that a call passes on are what arrives at others. The
work is linear in the number of records.
"""

from __future__ import annotations

import math
import zipfile
import zlib
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from msprobe_hooks.dump.call_context import modules_around
from msprobe_hooks.dump.containers import find_tensor, read_elements, split_name
from msprobe_hooks.dump.effects import effects_of_record
from msprobe_hooks.dump.names import (
    backward_of,
    direction_of,
    forward_of,
    is_communication,
    is_module_name,
    is_parameters_grad,
)
from msprobe_hooks.dump.schema import BackwardRecord, Number, TensorElement, backward_record, walk_tensors
from msprobe_hooks.errors import DumpError, MissingCodecError, RecordError
from msprobe_hooks.regular_files import open_regular, read_regular
from pytest_msprobe.engine.values.system_memory import require_memory

if TYPE_CHECKING:
    from msprobe_hooks.dump.reader import Dump


def content_key(element: TensorElement, folder: Path) -> Hashable | None:
    """Return what equal tensors of one shape and dtype share; None where the dump says nothing of its values.

    A checksum where one was recorded and the four statistics. Where these cannot distinguish tensors, such as bools,
    and ``folder`` has the tensor's file, the checksum of the file's content too.
    """
    statistics = _statistics(element)
    checksum = element.checksum
    if checksum is None and (element.mean is None or element.norm is None) and element.data_name:
        checksum = file_checksum(folder, element.data_name)
    if checksum is None and element.max is None:
        return None
    return element.dtype, element.shape, checksum, statistics


def reshaped_key(element: TensorElement) -> Hashable | None:
    """Return what a tensor of floats shares with its views of another shape; None where this says too little.

    Mean and norm are no part of it: summed in another order they differ by roundings, see `is_reshaped`.
    """
    if type(element.max) is not float or type(element.min) is not float or element.norm is None:
        return None
    if element.max == element.min or not math.isfinite(element.max - element.min):
        return None
    return element.dtype, math.prod(element.shape), element.max, element.min


def is_reshaped(element: TensorElement, other: TensorElement) -> bool:
    """Return whether mean and norm of two tensors that share a `reshaped_key` are those of the same numbers.

    n numbers summed in another order move by at most n roundings of the sum of their magnitudes, in practice by far
    fewer: 1e-4 of the norm is what a thousand roundings of float32 do, and of half precision is one.
    """
    tolerance = 1e-3 if "16" in element.dtype else 1e-4
    if element.norm is None or other.norm is None or element.mean is None or other.mean is None:
        return False
    scale = max(abs(element.norm), abs(other.norm))
    return abs(element.norm - other.norm) <= tolerance * scale and abs(element.mean - other.mean) <= tolerance * scale


def _statistics(element: TensorElement) -> tuple[Hashable, ...]:
    return tuple(map(_comparable, (element.max, element.min, element.mean, element.norm)))


def _comparable(number: Number | None) -> Hashable:
    # NaN is not equal to itself, and what holds it is still the same tensor.
    return "nan" if number is not None and math.isnan(number) else number


def file_checksum(folder: Path, name: str) -> str | None:
    """Return a checksum of the elements in a tensor's file; None where there is no such file or it is none of ours.

    A ``.pt`` file is an archive that lists the checksums of its parts; of a ``.npy`` file all is read, of a container
    the tensor alone. Raises MissingCodecError where that is compressed and cannot be read for want of the library.
    """
    contained = split_name(name)
    file = name if contained is None else contained[0]
    if PurePath(file).name != file:
        return None
    path = folder / file
    try:
        if contained is not None:
            tensor = find_tensor(path, contained[1])
            require_memory(path, tensor)
            return f"{zlib.crc32(read_elements(path, tensor, mapped=True).data):08x}"
        if path.suffix == ".npy":
            return f"{zlib.crc32(read_regular(path)):08x}"
        with open_regular(path) as content, zipfile.ZipFile(content) as archive:
            parts = [part.CRC for part in archive.infolist() if part.filename.endswith("/data/0")]
    except MissingCodecError:
        raise
    except (OSError, zipfile.BadZipFile, ValueError, DumpError):
        return None
    return f"{parts[0]:08x}" if parts else None


#: How the two ends of an edge were found to be one value: ``same`` content, the same numbers in another shape
#: (``reshaped``: a view between them was not recorded), or gradients that were added up (``summed``: one for each use
#: of a value in the forward direction).
Likeness = Literal["same", "reshaped", "summed"]
Parent = Callable[[str], "str | None"]


@dataclass(frozen=True, slots=True)
class Edge:
    """A value on its way from one record to another.

    ``output`` and ``input`` are its places there (``output.0``, ``kwargs.bias``), empty where they are not known.
    ``is_certain``: no other call made an equal value of its own before, as two masks of ones are.
    """

    producer: str
    output: str
    consumer: str
    input: str
    likeness: Likeness = "same"
    is_certain: bool = True


def find_flow(dump: Dump, parent_of: Parent) -> list[Edge]:
    """Return the edges between the records of a dump, in the order in which values arrived, those of sums last.

    ``parent_of`` gives the record of the module in which a record was made. An edge ends at the innermost record that
    took or gave the value, so a module's own inputs and outputs have edges only where no record in it has them.
    Malformed records have none.
    """
    if dump.level == "debug":
        return []
    tracing = _Tracing(dump, parent_of)
    for name, has_ended in _moments(dump.records, parent_of):
        if name in dump.records:
            tracing.end(name) if has_ended else tracing.begin(name)
    edges = _innermost(tracing.edges, parent_of)
    uses = _uses(edges, dump)
    sums = {edge for edge in edges if _is_sum_of(edge, uses, parent_of)}
    unexplained = [*tracing.unexplained, *dict.fromkeys((edge.consumer, edge.input) for edge in edges if edge in sums)]
    found = [edge for edge in edges if edge not in sums]
    return [*found, *_innermost(_summed(uses, unexplained), parent_of)]


def _moments(names: Iterable[str], parent_of: Parent) -> Iterator[tuple[str, bool]]:
    """Yield each record when it begins (False) and when it has ended (True).

    A module's record is after or before those of what ran in it; it begins before the first and ends after the
    last of them.
    """
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    nests = [(name, *modules_around(name, parent_of)) for name in names]
    for position, nest in enumerate(nests):
        for name in nest:
            first.setdefault(name, position)
            last[name] = position
    for position, nest in enumerate(nests):
        yield from ((name, False) for name in reversed(nest) if first[name] == position)
        yield from ((name, True) for name in nest if last[name] == position)


class _Tensor(NamedTuple):
    place: str
    element: TensorElement
    key: Hashable


class _Source(NamedTuple):
    """Last call that gave a value, and how many calls made one like it of their own; none, if it came from outside."""

    producer: str
    output: str
    origins: int
    element: TensorElement


class _Tracing:
    def __init__(self, dump: Dump, parent_of: Parent) -> None:
        self._dump, self._parent_of, self._folder = dump, parent_of, dump.tensor_folder
        self._sources: dict[Hashable, _Source] = {}
        self._views: dict[Hashable, _Source] = {}
        # Of each record that has begun: the keys of what it was given, and what it will return.
        self._running: dict[str, tuple[frozenset[Hashable], Sequence[_Tensor], bool]] = {}
        self.edges: list[Edge] = []
        #: Gradients that arrived at a record and that no record passed on: its name and their places.
        self.unexplained: list[tuple[str, str]] = []

    def begin(self, name: str) -> None:
        try:
            given, returned, is_repeated = self._tensors(name)
        except (RecordError, ValueError):
            return
        for tensor in given:
            self._take(name, tensor)
        self._running[name] = frozenset(tensor.key for tensor in given), returned, is_repeated

    def end(self, name: str) -> None:
        given, returned, is_repeated = self._running.pop(name, (frozenset(), (), False))
        for tensor in returned:
            if not self._came_from_inside(name, tensor.key):
                self._give(name, tensor, is_new=tensor.key not in given, is_repeated=is_repeated)

    def _take(self, name: str, tensor: _Tensor) -> None:
        source = self._sources.get(tensor.key)
        if source is not None and source.producer:
            self.edges.append(Edge(source.producer, source.output, name, tensor.place, "same", source.origins == 1))
            return
        view = self._views.get(reshaped_key(tensor.element))
        if view is not None and is_reshaped(view.element, tensor.element):
            self.edges.append(Edge(view.producer, view.output, name, tensor.place, "reshaped", view.origins == 1))
            return
        self._sources[tensor.key] = _Source("", "", 1, tensor.element)
        if direction_of(name) == "backward":
            self.unexplained.append((name, tensor.place))

    def _give(self, name: str, tensor: _Tensor, *, is_new: bool, is_repeated: bool) -> None:
        before = self._sources.get(tensor.key)
        origins = before.origins if before is not None else 0
        # Recomputing a call makes its values once more, for the calls that follow it.
        source = _Source(name, tensor.place, 1 if is_repeated else origins + is_new or 1, tensor.element)
        self._sources[tensor.key] = source
        view = reshaped_key(tensor.element)
        if view is not None:
            self._views[view] = source

    def _came_from_inside(self, module: str, key: Hashable) -> bool:
        source = self._sources.get(key)
        return (
            source is not None and is_module_name(module) and module in modules_around(source.producer, self._parent_of)
        )

    def _tensors(self, name: str) -> tuple[list[_Tensor], list[_Tensor], bool]:
        """Return what a record was given, what it returned, and whether it repeats an earlier call."""
        if direction_of(name) != "forward":
            backward = self._gradients(name)
            arriving, passed_on = (
                walk_tensors(backward.grad_outputs, "input"),
                walk_tensors(backward.grad_inputs, "output"),
            )
            return self._keyed(arriving), self._keyed(passed_on), False
        record = self._dump.forward(name)
        given = self._keyed([*walk_tensors(record.args, "input"), *walk_tensors(record.kwargs, "kwargs")])
        returned = self._keyed(walk_tensors(record.output, "output"))
        effects = effects_of_record(name)
        # Places for the result, and memory that no call has written to, held nothing that counts.
        given = [tensor for tensor in given if not effects.is_unread(tensor.place.split(".")[1])]
        if is_communication(name):
            # It returns its arguments: what it did not change it did not make.
            keys = {tensor.key for tensor in given}
            returned = [tensor for tensor in returned if tensor.key not in keys]
        return given, returned, record.is_recompute

    def _gradients(self, name: str) -> BackwardRecord:
        if not is_parameters_grad(name):
            return self._dump.backward(name)
        body = self._dump.body(name)
        return backward_record(name, {"input": [*body.values()]} if isinstance(body, dict) else body)

    def _keyed(self, tensors: Iterable[tuple[str, TensorElement]]) -> list[_Tensor]:
        keyed = (_Tensor(place, element, content_key(element, self._folder)) for place, element in tensors)
        return [tensor for tensor in keyed if tensor.key is not None]


def _innermost(edges: Sequence[Edge], parent_of: Parent) -> list[Edge]:
    """Leave out the edges into a module whose value a record inside of it takes too."""
    inside = {
        (edge.producer, edge.output, module) for edge in edges for module in modules_around(edge.consumer, parent_of)
    }
    return [edge for edge in edges if (edge.producer, edge.output, edge.consumer) not in inside]


#: By a value, a call and its output, the backward calls of those that used it, and whether that is certain.
_Uses: TypeAlias = Mapping[tuple[str, str], Mapping[str, bool]]


def _uses(edges: Iterable[Edge], dump: Dump) -> _Uses:
    uses: dict[tuple[str, str], dict[str, bool]] = defaultdict(dict)
    for edge in edges:
        backward = backward_of(edge.consumer)
        if direction_of(edge.consumer) == "forward" and backward in dump.records:
            uses[edge.producer, edge.output][backward] = edge.is_certain
    return uses


def _uses_of(name: str, place: str, uses: _Uses) -> Mapping[str, bool]:
    """Return the calls whose gradients add up to the one that arrived at a place of a backward record."""
    # The gradients that arrive stand in the order of the call's outputs.
    found = uses.get((forward_of(name), f"output{place.removeprefix('input')}"), {})
    return found if direction_of(name) == "backward" and len(found) > 1 else {}


def _is_sum_of(edge: Edge, uses: _Uses, parent_of: Parent) -> bool:
    """Return whether a module passed on a gradient which no record in it made: calls in it did, each a part."""
    of_value = _uses_of(edge.consumer, edge.input, uses)
    return bool(of_value) and all(edge.producer in modules_around(use, parent_of) for use in of_value)


def _summed(uses: _Uses, unexplained: Iterable[tuple[str, str]]) -> list[Edge]:
    """Return edges for gradients that no record passed on: where a value was used several times, theirs add up."""
    return [
        Edge(use, "", name, place, "summed", is_certain)
        for name, place in unexplained
        for use, is_certain in _uses_of(name, place, uses).items()
    ]
