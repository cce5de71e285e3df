"""How the tensors of a checked call lie in memory: as recorded, as the calls before it show, or contiguous."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from msprobe_hooks.dump.schema import Element, ForwardRecord, Layout, MappingElement, TensorElement, tensors_of

if TYPE_CHECKING:
    from msprobe_hooks.dump.derived_layouts import DerivedLayouts
    from msprobe_hooks.dump.reader import Dump
    from pytest_msprobe.engine.replay.call import Call
    from pytest_msprobe.run.options import LayoutChoice

#: Under this name a result has where the layouts of its tensors are known from; none where all were made contiguous.
LAYOUTS = "layouts"

_Change = Callable[[str, TensorElement], TensorElement]


class LayoutTally:
    """Counts, for the summary, the records by where the layouts of their tensors are known from."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def add(self, extras: Mapping[str, Any]) -> None:
        """Count one record."""
        if LAYOUTS in extras:
            self._counts[extras[LAYOUTS]] += 1

    def lines(self) -> list[str]:
        """Return the summary's line, none where all layouts were recorded."""
        if not self._counts["derived"] and not self._counts["unknown"]:
            return []
        counts = ", ".join(f"{self._counts[kind]} {kind}" for kind in ("recorded", "derived", "unknown"))
        return [f"memory layouts of inputs: {counts}"]


class LayoutChooser:
    """Gives calls the layouts that the option asks for; of one dump at a time it remembers what was derived."""

    def __init__(self, choice: LayoutChoice) -> None:
        self._choice = choice
        self._derived: tuple[Dump, DerivedLayouts] | None = None

    def chosen(self, dump: Dump, call: Call) -> Call:
        """Return a call whose tensors have the layouts that are asked for."""
        if self._choice == "contiguous":
            return _contiguous(call)
        layouts = {} if dump.has_layouts else self._of(dump).of(call.forward.name)
        if not layouts:
            return call
        return replace(call, forward=_mapped_inputs(call.forward, lambda path, x: _with(x, layouts.get(path))))

    def source(self, dump: Dump, call: Call) -> str | None:
        """Return where the layouts of a call's tensors are known from; None where it has none, or none are wanted."""
        forward = call.forward
        if self._choice == "contiguous" or not tensors_of([*forward.args, *forward.kwargs.values()]):
            return None
        if dump.has_layouts:
            return "recorded"
        return "derived" if self._of(dump).of(forward.name) else "unknown"

    def _of(self, dump: Dump) -> DerivedLayouts:
        if self._derived is None or self._derived[0] is not dump:
            from msprobe_hooks.dump.derived_layouts import DerivedLayouts

            self._derived = dump, DerivedLayouts(dump)
        return self._derived[1]


def _with(element: TensorElement, layout: Layout | None) -> TensorElement:
    return element if layout is None else msgspec.structs.replace(element, layout=layout)


def _without_layout(path: str, element: TensorElement) -> TensorElement:
    return element if element.layout is None else msgspec.structs.replace(element, layout=None)


def _contiguous(call: Call) -> Call:
    backward = call.backward
    if backward is not None:
        arriving = _mapped_all(backward.grad_outputs, "input", _without_layout)
        backward = msgspec.structs.replace(backward, grad_outputs=arriving)
    return replace(call, forward=_mapped_inputs(call.forward, _without_layout), backward=backward)


def _mapped_inputs(record: ForwardRecord, change: _Change) -> ForwardRecord:
    kwargs = {key: _mapped(element, f"kwargs.{key}", change) for key, element in record.kwargs.items()}
    return msgspec.structs.replace(record, args=_mapped_all(record.args, "input", change), kwargs=kwargs)


def _mapped_all(elements: Sequence[Element], path: str, change: _Change) -> list[Element]:
    return [_mapped(element, f"{path}.{place}", change) for place, element in enumerate(elements)]


def _mapped(element: Element, path: str, change: _Change) -> Element:
    if isinstance(element, TensorElement):
        return change(path, element)
    if isinstance(element, list):
        return _mapped_all(element, path, change)
    if isinstance(element, MappingElement):
        return MappingElement({key: _mapped(item, f"{path}.{key}", change) for key, item in element.items.items()})
    return element
