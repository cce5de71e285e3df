"""API calls, seen by functions put in the place of MindSpore's while recording is on."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any

from mindspore import nn
from mindspore.common.api import _pynative_executor
from mindspore.ops import Primitive

from msprobe_hooks.dump.names import backward_of, is_module_name
from msprobe_hooks.mindspore.apis import functions
from msprobe_hooks.mindspore.elements import takes_gradient
from msprobe_hooks.mindspore.gradients import Inputs, tensors_in
from msprobe_hooks.mindspore.recorder import MindSporeRecorder


class Calls:
    """Puts recording functions in place of those of the table between ``begin`` and ``end``.

    Names that a program bound before (``from mindspore.mint import matmul``) stay what they were.
    """

    def __init__(
        self, recorder: MindSporeRecorder, table: Callable[[], Iterable[tuple[Any, str, str]]] = functions
    ) -> None:
        self._recorder = recorder
        self._table = table
        self._replaced: list[tuple[Any, str, Any]] = []

    def begin(self) -> None:
        """Replace."""
        for owner, attribute, qualified in self._table():
            # Methods are inherited from a class of C++; what is not the class's own is removed again, not set back.
            self._replaced.append((owner, attribute, vars(owner).get(attribute)))
            setattr(owner, attribute, recording(self._recorder, getattr(owner, attribute), qualified))

    def end(self) -> None:
        """Put everything back."""
        while self._replaced:
            owner, attribute, own = self._replaced.pop()
            if own is None:
                delattr(owner, attribute)
            else:
                setattr(owner, attribute, own)


class Primitives:
    """Records the primitives that cells hold as attributes, as ``Primitive.{attribute}.{Class}``."""

    def __init__(self, recorder: MindSporeRecorder, cells: list[nn.Cell]) -> None:
        self._recorder = recorder
        self._cells = cells
        self._replaced: list[tuple[nn.Cell, str, Primitive]] = []

    def begin(self) -> None:
        """Replace."""
        for cell in self._cells:
            for attribute, primitive in cell._primitives.items():
                qualified = f"Primitive.{attribute}.{type(primitive).__name__}"
                # A cell's own way of setting attributes would make it another kind of attribute.
                object.__setattr__(cell, attribute, recording(self._recorder, primitive, qualified))
                self._replaced.append((cell, attribute, primitive))

    def end(self) -> None:
        """Put everything back."""
        while self._replaced:
            cell, attribute, primitive = self._replaced.pop()
            object.__setattr__(cell, attribute, primitive)


def recording(recorder: MindSporeRecorder, function: Callable[..., Any], qualified: str) -> Callable[..., Any]:
    """Return a function that does what ``function`` does and has the call recorded."""

    @functools.wraps(function, updated=())
    def call(*args: Any, **kwargs: Any) -> Any:
        if not recorder.is_recording or recorder.is_suspended:
            return function(*args, **kwargs)
        api_call = ApiCall(recorder, f"{qualified}.{recorder.number(qualified)}", sys._getframe(1))
        return run_recorded(recorder, api_call, function, args, kwargs)

    return call


def run_recorded(
    recorder: MindSporeRecorder, call: ApiCall, function: Callable[..., Any], args: Any, kwargs: Any
) -> Any:
    """Make a call and have it recorded; what it calls inside is not recorded again."""
    call.begin(args, kwargs)
    recorder.is_suspended = True
    try:
        result = function(*args, **kwargs)
        # Kernels run later: what one raises belongs to this call, and to the program rather than to who measures.
        _pynative_executor.sync()
    except BaseException as error:
        recorder.is_suspended = False
        call.fail(error)
        raise
    recorder.is_suspended = False
    call.end(result)
    return result


class ApiCall:
    """The record of one call in the making."""

    __slots__ = ("_elements", "_frame", "_inputs", "_key", "_parent", "_record", "_recorder")

    def __init__(self, recorder: MindSporeRecorder, key: str, frame: FrameType | None) -> None:
        self._recorder = recorder
        self._key = key
        self._frame = frame
        self._record: dict[str, Any] | None = None
        self._parent = recorder.parent
        self._inputs: Inputs | None = None

    def begin(self, args: Any, kwargs: Any) -> None:
        """Take the arguments as they are before the call."""
        try:
            self._begin(args, kwargs)
        except Exception as error:
            self._record = self._inputs = None
            self._recorder.note_error(self._key, error)

    def _begin(self, args: Any, kwargs: Any) -> None:
        recorder = self._recorder
        wanted = recorder.directions
        if wanted.backward and _pynative_executor.enable_grad():
            self._inputs = Inputs(tensors_in((args, kwargs)))
        name = f"{self._key}.forward"
        if not wanted.forward or not recorder.filter.admits(name):
            return
        self._record = {}
        self._elements = recorder.elements(name)
        if wanted.input and recorder.settings.task != "structure":
            with recorder.quiet():
                self._record["input_args"] = self._elements.sequence(args, "input")
                self._record["input_kwargs"] = self._elements.mapping(kwargs, "kwargs")

    def end(self, result: Any) -> None:
        """Take the result; arrange for the backward record."""
        recorder = self._recorder
        try:
            if self._record is not None:
                if recorder.directions.output and recorder.settings.task != "structure":
                    with recorder.quiet():
                        self._record["output"] = self._elements.output(result)
                self._emit()
            if self._inputs is not None:
                outputs = [tensor for tensor in tensors_in(result) if takes_gradient(tensor)]
                recorder.watch_backward(f"{self._key}.backward", mirrored(self._parent), outputs, self._inputs)
        except Exception as error:
            recorder.note_error(self._key, error)

    def fail(self, error: BaseException) -> None:
        """Write a record that says what the call raised."""
        if self._record is not None:
            self._recorder.note_raised(self._record, error)
            self._emit()

    def _emit(self) -> None:
        assert self._record is not None
        if self._elements.details:
            self._record["details"] = self._elements.details
        self._recorder.summary.calls += 1
        self._recorder.emit(f"{self._key}.forward", self._record, self._parent, self._frame)


def mirrored(parent: str | None) -> str | None:
    """Return the backward name of the cell whose forward name is given."""
    return parent if parent is None or not is_module_name(parent) else backward_of(parent)
