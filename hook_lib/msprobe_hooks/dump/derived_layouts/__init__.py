"""Memory layouts of tensors, concluded from the calls of a dump that does not record them.

What is not certain is left out: a tensor's layout is known where the calls before it show it, from one whose result is
contiguous whatever it was given, through views.

Importing its modules loads msgspec.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from msprobe_hooks.dump.derived_layouts import known_memory as memory
from msprobe_hooks.dump.derived_layouts import view_calls as calls
from msprobe_hooks.dump.derived_layouts.known_memory import Known, NotAViewError, fresh, strided, without_place
from msprobe_hooks.dump.derived_layouts.view_calls import (
    Entry,
    UnreadableArgumentError,
    content_of,
    entries,
    is_entry,
    plain,
    shape_of,
)
from msprobe_hooks.dump.memory_layouts import Layout, contiguous_stride, format_stride, span
from msprobe_hooks.dump.names import is_module_name, split_direction
from msprobe_hooks.errors import RecordError

if TYPE_CHECKING:
    from msprobe_hooks.dump.reader import Dump

_TYPES = frozenset({"Tensor", "Torch", "Functional"})
_IN_PLACE = frozenset({"__iadd__", "__isub__", "__imul__", "__itruediv__", "__ifloordiv__", "__ipow__"})


class DerivedLayouts:
    """Concludes how the inputs of calls lay in memory, as far as the calls before them show it.

    A tensor is recognised by its statistics, or its checksum: a later input of the same content is taken for it where
    no other tensor of that content was seen that lies in another way. Records are read once, as far as they are asked
    for; what is kept of each is a few numbers.
    """

    def __init__(self, dump: Dump) -> None:
        self._dump = dump
        # By the names of torch, other frameworks mean other views.
        self._names: Iterator[str] = iter(dump.records if dump.framework == "pytorch" else ())
        self._found: dict[str, dict[str, Layout]] = {}
        self._passed: set[str] = set()
        # What is known of tensors by their content, None where that is nothing or several things.
        self._places: dict[int, Known | None] = {}
        self._families: dict[int, bool] = {}
        self._numbers = itertools.count(1)

    def of(self, name: str) -> Mapping[str, Layout]:
        """Return the layouts of a forward record's inputs by their paths, contiguous ones included."""
        while name not in self._passed:
            following = next(self._names, None)
            if following is None:
                break
            self._passed.add(following)
            self._pass(following)
        return self._found.get(name, {})

    def _pass(self, name: str) -> None:
        key, direction = split_direction(name)
        if direction != "forward" or is_module_name(name):
            return
        with suppress(RecordError, RecursionError):
            body = self._dump.body(name)
            if isinstance(body, dict):
                kind, _, rest = key.partition(".")
                self._take(name, rest.rpartition(".")[0] if kind in _TYPES else "", body)

    def _take(self, name: str, api: str, body: Mapping[str, Any]) -> None:
        args, kwargs = body.get("input_args") or [], body.get("input_kwargs") or {}
        outputs = body.get("output") or []
        if not (isinstance(args, list) and isinstance(kwargs, dict) and isinstance(outputs, list)):
            return
        inputs = [*entries(args, "input"), *entries(kwargs, "kwargs")]
        places = {path: x for path, entry in inputs if (x := self._seen(entry)) is not None}
        if places:
            self._found[name] = _layouts(places)
        call = _Call(api, args, kwargs, inputs, places, self._numbers)
        for entry, x in call.results(outputs):
            self._note(entry, x)

    def _seen(self, entry: Entry) -> Known | None:
        """Return what is known of an input; one that no call gave may be any tensor from outside."""
        content = content_of(entry)
        if content is None:
            return None
        exact, family = content
        if exact in self._places:
            return None if self._families[family] else self._places[exact]
        self._places[exact] = None
        # One of the same elements in other dimensions comes from a call that is not recorded.
        self._families[family] = family in self._families
        return None

    def _note(self, entry: Entry, x: Known | None) -> None:
        content = content_of(entry)
        if content is None:
            return
        exact, family = content
        self._families.setdefault(family, False)
        before = self._places.get(exact, x)
        if before is None or x is None or not before.lies_as(x):
            self._places[exact] = None
        else:
            self._places[exact] = x if before.storage == x.storage else msgspec.structs.replace(x, storage=0)


class _Call:
    """A call that is gone through: its arguments, and what is known of the tensors among them."""

    def __init__(
        self,
        api: str,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        inputs: Sequence[tuple[str, Entry]],
        places: Mapping[str, Known],
        numbers: Iterator[int],
    ) -> None:
        self._api = api
        self._args = args
        self._kwargs = kwargs
        self._inputs = inputs
        self._places = places
        self._numbers = numbers
        self._first = places.get("input.0") if args and is_entry(args[0]) else None

    def results(self, outputs: Sequence[Any]) -> Iterator[tuple[Entry, Known | None]]:
        """Yield the entries of the results with what is known of them."""
        tensors = list(entries(list(outputs), "output"))
        places: Sequence[Known | None] = [None] * len(tensors)
        if tensors and "out" not in self._kwargs:
            with suppress(NotAViewError, UnreadableArgumentError, TypeError, ValueError):
                places = self._made([entry for _, entry in tensors])
        if len(places) != len(tensors):
            places = [None] * len(tensors)
        for (_, entry), x in zip(tensors, places, strict=True):
            if x is not None and x.is_conj and not calls.is_complex(entry):
                x = memory.flipped(x, conj=True)
            yield entry, x if x is not None and x.shape == shape_of(entry) else None

    def _made(self, outputs: Sequence[Entry]) -> Sequence[Known | None]:
        api, x = self._api, self._first
        shape = shape_of(outputs[0])
        if shape is None or 0 in shape:
            return []
        if api in calls.VIEWS:
            result = None if x is None else calls.VIEWS[api](x, self._plain())
            return [result] if result is None or isinstance(result, Known) else result
        return [self._single(api, x, shape, outputs[0])]

    def _single(self, api: str, x: Known | None, shape: tuple[int, ...], output: Entry) -> Known | None:
        if api in calls.SHAPED:
            other = shape_of(self._inputs[1][1]) if len(self._inputs) > 1 else None
            return None if x is None or other is None else calls.SHAPED[api](x, other)
        if api in calls.RESHAPES:
            view = None if x is None else calls.RESHAPES[api](x, self._plain())
            return view if view is not None or x is None else self._fresh(shape)
        if api in calls.CONTIGUOUS:
            return self._fresh(shape) if self._makes_contiguous(api) else None
        if api in calls.ELEMENTWISE:
            return self._fresh(shape) if x is not None and x.is_contiguous and x.shape == shape else None
        if api in calls.MAYBE_ITSELF:
            return self._maybe_itself(api, x, shape, output)
        if api in _IN_PLACE or (api.endswith("_") and not api.endswith("__") and api not in calls.MOVED_IN_PLACE):
            return x
        return None

    def _makes_contiguous(self, api: str) -> bool:
        if any(self._kwargs.get(name) is not None for name in ("memory_format", "layout", "sparse")):
            return False
        # A product of less than two dimensions takes other ways.
        shape = shape_of(self._args[0]) if self._args and is_entry(self._args[0]) else None
        return api != "linear" or (shape is not None and len(shape) > 1)

    def _maybe_itself(self, api: str, x: Known | None, shape: tuple[int, ...], output: Entry) -> Known | None:
        entry = self._args[0] if self._args and is_entry(self._args[0]) else None
        # A copy holds the elements themselves, a tensor that is passed on what it held.
        if entry is None or shape_of(entry) != shape or (x is not None and (x.is_conj or x.is_neg)):
            return None
        memory_format = self._memory_format() or ("contiguous_format" if api == "contiguous" else "preserve_format")
        if api in calls.TAKE_FORMATS and memory_format != "preserve_format":
            stride = format_stride(memory_format, shape)
            if stride is None:
                return None
            return x if api == "contiguous" and x is not None and x.has_strides(stride) else strided(shape, stride)
        if x is None:
            return None
        if x.is_contiguous:
            return without_place(x)
        # A dropout that drops nothing returns what it is given.
        return x if api == "dropout" and content_of(entry) == content_of(output) is not None else None

    def _memory_format(self) -> str | None:
        named = self._kwargs.get("memory_format")
        formats = [arg for arg in (named, *self._args[1:]) if isinstance(arg, dict) and "format" in arg]
        return plain(formats[0]) if formats else None

    def _plain(self) -> calls.CallArguments:
        args = [plain(argument) for argument in self._args[1:]]
        return calls.CallArguments(args, {key: plain(argument) for key, argument in self._kwargs.items()})

    def _fresh(self, shape: tuple[int, ...]) -> Known:
        return fresh(shape, next(self._numbers))


def _layouts(places: Mapping[str, Known]) -> dict[str, Layout]:
    counts = Counter(x.storage for x in places.values() if x.storage)
    shared = {storage: number for number, storage in enumerate(one for one in counts if counts[one] > 1)}
    return {path: _layout(x, shared.get(x.storage)) for path, x in places.items()}


def _layout(x: Known, storage: int | None) -> Layout:
    stride = contiguous_stride(x.shape) if x.is_contiguous else x.stride
    size = x.size if x.size is not None and x.size > span(x.shape, stride) else None
    return Layout(stride, x.offset or 0, size, storage, derived=True, is_conj=x.is_conj, is_neg=x.is_neg)
