"""Choice of memory layouts of a checked call's tensors: as recorded, as derived from earlier calls, or contiguous."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from msprobe_hooks.dump.schema import Element, ForwardRecord, Layout, MappingElement, TensorElement
from msprobe_hooks.messages import counted

if TYPE_CHECKING:
    from msprobe_hooks.dump.derived_layouts import DerivedLayouts
    from msprobe_hooks.dump.reader import Dump
    from pytest_msprobe.engine.replay.call import Call
    from pytest_msprobe.run.options import LayoutChoice

#: Under this name a result says that layouts of its inputs were derived.
LAYOUTS = "layouts"

_Change = Callable[[str, TensorElement], TensorElement]


class LayoutTally:
    """Counts, for the summary, the records that ran on derived layouts; other records of a dump without any do not."""

    def __init__(self, choice: LayoutChoice, dumps: Iterable[Dump]) -> None:
        self._lacking = 0 if choice == "contiguous" else sum(not dump.has_layouts for dump in dumps)
        self._derived = 0

    def add(self, extras: Mapping[str, Any]) -> None:
        """Count one record."""
        self._derived += LAYOUTS in extras

    def lines(self) -> list[str]:
        """Return the summary's line, none where all layouts were recorded or none are wanted."""
        if not self._lacking:
            return []
        ran = "inputs were contiguous"
        if self._derived:
            ran = f"{counted(self._derived, 'record')} ran on derived ones, the others on contiguous inputs"
        return [f"{counted(self._lacking, 'dump')} without memory layouts: {ran}"]


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

    def derives(self, dump: Dump, call: Call) -> bool:
        """Return whether layouts of a call's inputs were derived."""
        is_wanted = self._choice == "auto" and not dump.has_layouts
        return is_wanted and bool(self._of(dump).of(call.forward.name))

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
