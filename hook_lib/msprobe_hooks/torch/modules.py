"""Module calls, seen by forward hooks that clone nothing; gradients come from the autograd graph as for calls."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable, Sequence
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from msprobe_hooks.torch.calls import is_recomputed, is_traced, mirrored
from msprobe_hooks.torch.gradients import Inputs, tensors_in
from msprobe_hooks.torch.quiet import Quiet
from msprobe_hooks.torch.recorder import TorchRecorder

_HOOK_FRAMES_OF = torch.nn.modules.module.__file__


def named_submodules(model: nn.Module | Sequence[nn.Module]) -> Iterable[tuple[str, nn.Module]]:
    """Yield the record prefix and the module of everything inside a model; the model itself is not recorded."""
    models = [("", model)] if isinstance(model, nn.Module) else [(f"{place}.", one) for place, one in enumerate(model)]
    for index, one in models:
        for path, module in one.named_modules():
            if path:
                yield f"Module.{index}{path}.{type(module).__name__}", module


class ModuleHooks:
    """The hooks on a set of modules; ``remove`` takes them all off."""

    def __init__(self, recorder: TorchRecorder, modules: Iterable[tuple[str, nn.Module]]) -> None:
        self._recorder = recorder
        self._calls = _Calls()
        self._handles: list[RemovableHandle] = []
        for prefix, module in modules:
            self._install(prefix, module)

    def remove(self) -> None:
        """Take the hooks off."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _install(self, prefix: str, module: nn.Module) -> None:
        recorder, calls = self._recorder, self._calls

        def begin(module: nn.Module, args: Any, kwargs: Any) -> None:
            if recorder.is_recording and not is_traced():
                calls.stack.append(_begin(recorder, prefix, module, args, kwargs))

        def end(module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
            if is_traced():
                return
            # Recording may have been switched while the module ran.
            if calls.stack and calls.stack[-1].module is module:
                calls.stack.pop().end(output)

        self._handles.append(module.register_forward_pre_hook(begin, with_kwargs=True))
        self._handles.append(module.register_forward_hook(end, with_kwargs=True, always_call=True))
        if recorder.directions.backward and recorder.directions.output:
            gradients = ParameterGradients(recorder, prefix, module)
            self._handles += gradients.install()


class _Calls(threading.local):
    def __init__(self) -> None:
        self.stack: list[ModuleCall] = []


def _begin(recorder: TorchRecorder, prefix: str, module: nn.Module, args: Any, kwargs: Any) -> ModuleCall:
    call = ModuleCall(recorder, prefix, module, _outside_of_modules(sys._getframe(2)))
    has_grad = torch._C.is_grad_enabled()
    try:
        with Quiet():
            call.begin(args, kwargs, has_grad)
    except Exception as error:
        recorder.note_error(prefix, error)
    recorder.modules.append(call.name)
    return call


def _outside_of_modules(frame: FrameType | None) -> FrameType | None:
    # The frames that run hooks tell nothing and differ with the hooks that a model has.
    while frame is not None and frame.f_code.co_filename == _HOOK_FRAMES_OF:
        frame = frame.f_back
    return frame


class ModuleCall:
    """The record of one module call in the making."""

    __slots__ = ("_elements", "_frame", "_inputs", "_number", "_parent", "_prefix", "_record", "_recorder", "module")

    def __init__(self, recorder: TorchRecorder, prefix: str, module: nn.Module, frame: FrameType | None) -> None:
        self.module = module
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

    def begin(self, args: Any, kwargs: Any, has_grad: bool) -> None:
        """Take inputs and parameters as they are before the module runs."""
        recorder = self._recorder
        wanted = recorder.directions
        admitted = recorder.filter.enter_module(self.name)
        if wanted.backward and has_grad:
            # Awaiting the parameters' gradients puts a module's record after those of what ran inside it.
            self._inputs = Inputs(tensors_in((args, kwargs)), self.module.parameters())
        if not admitted or not wanted.forward:
            return
        record: dict[str, Any] = {}
        self._record = record
        self._elements = elements = recorder.elements(self.name)
        if recorder.settings.task != "structure" and wanted.input:
            record["input_args"] = elements.sequence(args, "input")
            record["input_kwargs"] = elements.mapping(kwargs, "kwargs")
            own = dict(self.module.named_parameters(recurse=False))
            record["parameters"] = elements.mapping(own, "parameters")
        record["is_recompute"] = is_recomputed(self._frame)

    def end(self, output: Any) -> None:
        """Take the output, or that there is none because the module raised."""
        recorder = self._recorder
        if recorder.modules and recorder.modules[-1] == self.name:
            recorder.modules.pop()
        error = sys.exc_info()[1]
        try:
            recorder.filter.leave_module(self.name)
            with Quiet():
                self._end(output, error)
        except Exception as problem:
            recorder.note_error(self.name, problem)

    def _end(self, output: Any, error: BaseException | None) -> None:
        recorder = self._recorder
        record = self._record
        if record is not None:
            if error is not None:
                record["output"] = []
                record["exception"] = f"{type(error).__name__}: {error}"
                recorder.summary.raised += 1
            elif recorder.directions.output and recorder.settings.task != "structure":
                record["output"] = self._elements.output(output)
            if self._elements.details:
                record["details"] = self._elements.details
            recorder.summary.modules += 1
            recorder.emit(self.name, record, self._parent, self._frame)
        if self._inputs is not None and error is None:
            outputs = [tensor for tensor in tensors_in(output) if tensor.requires_grad]
            name = f"{self._prefix}.backward.{self._number}"
            recorder.watch_backward(name, mirrored(self._parent), outputs, self._inputs, "modules")


class ParameterGradients:
    """Records the accumulated gradients of a module's own parameters, once all of them arrived in a backward pass."""

    def __init__(self, recorder: TorchRecorder, prefix: str, module: nn.Module) -> None:
        self._recorder = recorder
        self._prefix = prefix
        self._parameters = {name: one for name, one in module.named_parameters(recurse=False) if one.requires_grad}
        self._arrived: dict[str, Tensor] = {}

    def install(self) -> list[RemovableHandle]:
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
            with Quiet():
                elements = recorder.elements(name)
                record = {key: [elements.element(gradient, key)] for key, gradient in arrived.items()}
        recorder.summary.modules += 1
        recorder.emit(name, record, None)

    def _hook(self, name: str, parameter: Tensor) -> RemovableHandle:
        def arrive(parameter: Tensor) -> None:
            if not self._recorder.is_recording:
                return
            with Quiet():
                gradient = parameter.grad
            if gradient is not None:
                self._arrived[name] = gradient
            self._recorder.at_end_of_backward(self)
            if len(self._arrived) == len(self._parameters):
                self.finish()

        return parameter.register_post_accumulate_grad_hook(arrive)  # type: ignore[no-untyped-call,no-any-return]
