"""The record of a call in the making, of an API or of a module, whichever framework makes the call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from types import FrameType
from typing import Any, ClassVar

from msprobe_hooks.dump.effects import UNDEFINED
from msprobe_hooks.dump.names import backward_of, is_module_name, split_called
from msprobe_hooks.dump.schema import OVERWRITTEN
from msprobe_hooks.recording.backward import Inputs
from msprobe_hooks.recording.elements import ElementBuilder, TensorEntry
from msprobe_hooks.recording.recorder import Recorder
from msprobe_hooks.recording.summary import Count, described


class CallRecord:
    """Common part of the records of API calls and of module calls. ``name`` is that of the forward record."""

    __slots__ = ("_elements", "_frame", "_inputs", "_parent", "_record", "_recorder", "name")

    count: ClassVar[Count]
    count_backward: ClassVar[Count]

    _elements: ElementBuilder

    def __init__(self, recorder: Recorder, name: str, frame: FrameType | None) -> None:
        self.name = name
        self._recorder = recorder
        self._frame = frame
        self._parent = recorder.parent
        self._inputs: Inputs | None = None
        self._record: dict[str, Any] | None = None

    def fail(self, error: BaseException) -> None:
        """Write a record, which says what the call raised where that is a failure, and count it."""
        with self._recorder.net(self.name):
            if self._record is not None:
                self._record["output"] = []
                if self._recorder.is_failure(error):
                    self._record["exception"] = described(error)
                    self._recorder.summary.raised += 1
                self._emit()

    def _take_inputs(self, args: Any, kwargs: Any, parameters: Callable[[], Mapping[str, Any]] | None = None) -> None:
        recorder = self._recorder
        record: dict[str, Any] = {}
        self._record = record
        self._elements = elements = recorder.elements(self.name)
        if recorder.settings.task == "structure":
            return
        if recorder.directions.input:
            record["input_args"] = elements.sequence(args, "input")
            record["input_kwargs"] = elements.mapping(kwargs, "kwargs")
            if parameters is not None:
                record["parameters"] = elements.mapping(parameters(), "parameters")
            elements.number_storages(record)
        is_recompute = recorder.is_recompute(self._frame)
        if is_recompute is not None:
            record["is_recompute"] = is_recompute

    def _take_output(self, output: Any, produced: Any) -> None:
        recorder = self._recorder
        if self._record is not None:
            if recorder.directions.output and recorder.settings.task != "structure":
                self._record["output"] = self._elements.output(output)
                self._look_again()
            self._emit()
        if self._inputs is not None:
            outputs = recorder.differentiated(produced)
            if outputs:
                parent = self._parent
                if parent is not None and is_module_name(parent):
                    parent = backward_of(parent)
                recorder.watch_backward(backward_of(self.name), parent, outputs, self._inputs, self.count_backward)

    def note_undefined(self, place: str) -> None:
        """Note that a value of the record is memory which nothing was written to yet."""
        if self._record is not None:
            self._elements.details[place] = {"values": UNDEFINED}

    def _look_again(self) -> None:
        """Look at the inputs again where the output gives reason to."""

    def _emit(self) -> None:
        assert self._record is not None
        if self._elements.details:
            self._record["details"] = self._elements.details
        self._recorder.emit(self.name, self._record, self._parent, self.count, self._frame)

    def _note_error_before(self, error: Exception) -> None:
        # There is no record that its number could be of.
        self._recorder.note_error(split_called(self.name)[0], error)

    def _note_error_after(self, error: Exception) -> None:
        self._recorder.note_error(self.name, error)


class ApiCall(CallRecord):
    """The record of one API call; ``name`` is ``{Type}.{api}.{number}.forward``."""

    __slots__ = ("_changed", "_given", "_written")

    count = "calls"
    count_backward = "backwards"

    def run(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Make the call and take what comes of it."""
        try:
            result = func(*args, **kwargs)
        except BaseException as error:
            self.fail(error)
            raise
        self.end(result)
        return result

    def run_as_a_whole(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Make the call and take what comes of it; what it calls inside is not recorded again."""
        self._recorder.is_suspended = True
        try:
            return self.run(func, args, kwargs)
        finally:
            self._recorder.is_suspended = False

    def begin(
        self,
        args: Any,
        kwargs: Any,
        changed: Any = None,
        written: list[Any] | None = None,
        *,
        has_backward: bool = True,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        """Take the arguments as they are before the call.

        ``changed`` is what a call without result writes to, for its gradients; ``written`` are arguments whose values
        after such a call are recorded as its output. Without ``has_backward`` no backward record is made. ``settings``
        are what the called object was made with, as JSON has it. A call whose arguments cannot be looked at is not
        recorded.
        """
        recorder = self._recorder
        directions = recorder.directions
        self._changed = changed
        self._written = written
        self._given = args, kwargs
        try:
            has_grad = has_backward and directions.backward and recorder.is_grad_enabled()
            with recorder.quiet():
                if has_grad:
                    self._inputs = recorder.inputs((args, kwargs) if kwargs else args)
                if directions.forward and recorder.filter.admits(self.name):
                    self._take_inputs(args, kwargs)
                    if settings is not None:
                        self._elements.details["settings"] = settings
        except Exception as error:
            self._record = self._inputs = None
            self._note_error_before(error)

    def _look_again(self) -> None:
        # What was measured before may have been overwritten past the framework: then this call is not to blame.
        args, kwargs = self._given
        record, recorder = self._record, self._recorder
        if not recorder.has_met_non_finite() or record is None:
            return
        for side, path, arguments in (
            ("input_args", "input", dict(enumerate(args))),
            ("input_kwargs", "kwargs", kwargs),
        ):
            elements: Any = record.get(side)
            # Those that wait to be built are measured when they are.
            for place, value in arguments.items() if type(elements) in (list, dict) else ():
                if recorder.is_stale(value) and isinstance(elements[place], TensorEntry):
                    elements[place] = entry = copy(elements[place])
                    recorder.summarise(value, entry)
                    self._elements.details[f"{path}.{place}"] = {"values": OVERWRITTEN}

    def end(self, result: Any) -> None:
        """Take the result; arrange for the backward record."""
        output = result
        if result is None and self._written:
            output = self._written[0] if len(self._written) == 1 else self._written
        try:
            with self._recorder.quiet():
                self._take_output(output, result if self._changed is None else self._changed)
        except Exception as error:
            self._note_error_after(error)
