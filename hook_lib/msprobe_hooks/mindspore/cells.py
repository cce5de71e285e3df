"""Cell calls, seen by forward hooks; gradients come from the autograd graph as for calls."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable, Sequence
from types import FrameType
from typing import Any, TypeAlias

from mindspore import Parameter, Tensor, nn
from mindspore.common.api import _pynative_executor

from msprobe_hooks.mindspore.calls import mirrored
from msprobe_hooks.mindspore.elements import takes_gradient
from msprobe_hooks.mindspore.gradients import Inputs, tensors_in
from msprobe_hooks.mindspore.recorder import MindSporeRecorder

Model: TypeAlias = nn.Cell | Sequence[nn.Cell]

_HOOK_FRAMES_OF = sys.modules[nn.Cell.__module__].__file__


def named_cells(model: Model) -> Iterable[tuple[str, nn.Cell]]:
    """Yield the record prefix and the cell of everything inside a model; the model itself is not recorded."""
    models = [("", model)] if isinstance(model, nn.Cell) else [(f"{place}.", one) for place, one in enumerate(model)]
    for index, one in models:
        for path, cell in one.cells_and_names():
            if path:
                yield f"Cell.{index}{path}.{type(cell).__name__}", cell


class CellHooks:
    """The hooks on a set of cells; ``remove`` takes them all off."""

    def __init__(self, recorder: MindSporeRecorder, cells: Iterable[tuple[str, nn.Cell]]) -> None:
        self._recorder = recorder
        self._calls = _Calls()
        self._handles: list[Any] = []
        for prefix, cell in cells:
            self._install(prefix, cell)

    def remove(self) -> None:
        """Take the hooks off."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _install(self, prefix: str, cell: nn.Cell) -> None:
        recorder, calls = self._recorder, self._calls

        def begin(cell: nn.Cell, args: Any, kwargs: Any) -> None:
            if recorder.is_recording and not recorder.is_suspended:
                calls.stack.append(_begin(recorder, prefix, cell, args, kwargs))

        def end(cell: nn.Cell, args: Any, kwargs: Any, output: Any) -> None:
            # Recording may have been switched while the cell ran.
            if calls.stack and calls.stack[-1].cell is cell:
                calls.stack.pop().end(output)

        self._handles.append(cell.register_forward_pre_hook(begin, with_kwargs=True))
        self._handles.append(cell.register_forward_hook(end, with_kwargs=True, always_call=True))
        if recorder.directions.backward and recorder.directions.output:
            self._handles += ParameterGradients(recorder, prefix, cell).install()


class _Calls(threading.local):
    def __init__(self) -> None:
        self.stack: list[CellCall] = []


def _begin(recorder: MindSporeRecorder, prefix: str, cell: nn.Cell, args: Any, kwargs: Any) -> CellCall:
    call = CellCall(recorder, prefix, cell, _outside_of_cells(sys._getframe(2)))
    try:
        call.begin(args, kwargs)
    except Exception as error:
        recorder.note_error(prefix, error)
    recorder.modules.append(call.name)
    return call


def _outside_of_cells(frame: FrameType | None) -> FrameType | None:
    # The frames that run hooks tell nothing and differ with the hooks that a model has.
    while frame is not None and frame.f_code.co_filename == _HOOK_FRAMES_OF:
        frame = frame.f_back
    return frame


class CellCall:
    """The record of one cell call in the making."""

    __slots__ = ("_elements", "_frame", "_inputs", "_number", "_parent", "_prefix", "_record", "_recorder", "cell")

    def __init__(self, recorder: MindSporeRecorder, prefix: str, cell: nn.Cell, frame: FrameType | None) -> None:
        self.cell = cell
        self._recorder = recorder
        self._prefix = prefix
        self._frame = frame
        self._number = recorder.number(f"{prefix}.forward")
        self._parent = recorder.parent
        self._inputs: Inputs | None = None
        self._record: dict[str, Any] | None = None

    @property
    def name(self) -> str:
        """The name of the forward record."""
        return f"{self._prefix}.forward.{self._number}"

    def begin(self, args: Any, kwargs: Any) -> None:
        """Take inputs and parameters as they are before the cell runs."""
        recorder = self._recorder
        wanted = recorder.directions
        admitted = recorder.filter.enter_module(self.name)
        if wanted.backward and _pynative_executor.enable_grad():
            # Awaiting the parameters' gradients puts a cell's record after those of what ran inside it.
            self._inputs = Inputs(tensors_in((args, kwargs)), self.cell.get_parameters())
        if not admitted or not wanted.forward:
            return
        self._record = record = dict[str, Any]()
        self._elements = elements = recorder.elements(self.name)
        if recorder.settings.task != "structure" and wanted.input:
            with recorder.quiet():
                record["input_args"] = elements.sequence(args, "input")
                record["input_kwargs"] = elements.mapping(kwargs, "kwargs")
                record["parameters"] = elements.mapping(dict(own_parameters(self.cell)), "parameters")

    def end(self, output: Any) -> None:
        """Take the output, or that there is none because the cell raised."""
        recorder = self._recorder
        if recorder.modules and recorder.modules[-1] == self.name:
            recorder.modules.pop()
        error = sys.exc_info()[1]
        try:
            recorder.filter.leave_module(self.name)
            self._end(output, error)
        except Exception as problem:
            recorder.note_error(self.name, problem)

    def _end(self, output: Any, error: BaseException | None) -> None:
        recorder, record = self._recorder, self._record
        if record is not None:
            if error is not None:
                recorder.note_raised(record, error)
            elif recorder.directions.output and recorder.settings.task != "structure":
                with recorder.quiet():
                    record["output"] = self._elements.output(output)
            if self._elements.details:
                record["details"] = self._elements.details
            recorder.summary.modules += 1
            recorder.emit(self.name, record, self._parent, self._frame)
        if self._inputs is not None and error is None:
            outputs = [tensor for tensor in tensors_in(output) if takes_gradient(tensor)]
            name = f"{self._prefix}.backward.{self._number}"
            recorder.watch_backward(name, mirrored(self._parent), outputs, self._inputs, "modules")


def own_parameters(cell: nn.Cell) -> Iterable[tuple[str, Parameter]]:
    """Yield the names, as attributes, and the parameters that a cell itself holds."""
    for name, parameter in cell._params.items():
        if parameter is not None:
            yield name, parameter


class ParameterGradients:
    """Records the gradients of a cell's own parameters, once all of them arrived in a backward pass."""

    def __init__(self, recorder: MindSporeRecorder, prefix: str, cell: nn.Cell) -> None:
        self._recorder = recorder
        self._prefix = prefix
        self._parameters = {name: one for name, one in own_parameters(cell) if one.requires_grad}
        self._arrived: dict[str, Tensor] = {}

    def install(self) -> list[Any]:
        """Put the hooks on."""
        return [self._hook(name, parameter) for name, parameter in self._parameters.items()]

    def finish(self) -> None:
        """Write what arrived; a second time does nothing."""
        arrived, self._arrived = self._arrived, {}
        recorder = self._recorder
        if not arrived or not recorder.is_recording:
            return
        prefix = f"{self._prefix}.parameters_grad"
        name = f"{prefix}.{recorder.number(prefix)}"
        if not recorder.filter.admits(name):
            return
        record: dict[str, Any] = {}
        if recorder.settings.task != "structure":
            with recorder.quiet():
                elements = recorder.elements(name)
                record = {key: [elements.element(arrived[key], key)] for key in self._parameters if key in arrived}
        recorder.summary.modules += 1
        recorder.emit(name, record, None)

    def _hook(self, name: str, parameter: Parameter) -> Any:
        def arrive(gradient: Tensor) -> None:
            if not self._recorder.is_recording:
                return
            self._arrived[name] = gradient
            self._recorder.at_end_of_backward(self)
            if len(self._arrived) == len(self._parameters):
                self.finish()

        return parameter.register_hook(arrive)
