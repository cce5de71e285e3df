"""Calls of modules (cells), seen by forward hooks that clone nothing; gradients come from the autograd graph."""

from __future__ import annotations

import inspect
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import FrameType, MappingProxyType
from typing import Any, ClassVar

from msprobe_hooks.recording.call_records import CallRecord
from msprobe_hooks.recording.interposition import uncopied
from msprobe_hooks.recording.recorder import Recorder
from msprobe_hooks.recording.safety_net import guarded


def prefixed(
    model: Any, type_: str, named_modules: Callable[[Any], Iterable[tuple[str, Any]]]
) -> Iterator[tuple[str, Any]]:
    """Yield the record prefix and the module of everything inside a model, or a list or tuple of them.

    ``type_`` starts the prefixes; ``named_modules`` yields the paths and the modules of a model, its own path being
    empty: the model itself is not recorded.
    """
    is_many = isinstance(model, (list, tuple))
    models = [(f"{place}.", one) for place, one in enumerate(model)] if is_many else [("", model)]
    for index, one in models:
        for path, module in named_modules(one):
            if path:
                yield f"{type_}.{index}{path}.{type(module).__name__}", module


class ModuleHooks(ABC):
    """The hooks on a set of modules, pairs of record prefix and module; ``remove`` takes them all off."""

    #: The file whose frames run the hooks.
    hooks_run_in: ClassVar[str]
    #: The method of a module whose parameters name its arguments.
    call_method: ClassVar[str]
    gradients: ClassVar[type[ParameterGradients]]
    #: How the hook that runs after a module is registered, by default to run also where the module raised.
    end_options: ClassVar[Mapping[str, bool]] = MappingProxyType({"with_kwargs": True, "always_call": True})

    def __init__(self, recorder: Recorder, modules: Iterable[tuple[str, Any]]) -> None:
        self._recorder = recorder
        self._running = _Running()
        self._handles: list[Any] = []
        for prefix, module in modules:
            with recorder.net(prefix):
                self._install(prefix, module)

    def remove(self) -> None:
        """Take the hooks off."""
        for handle in self._handles:
            with self._recorder.net("removal of a hook"):
                handle.remove()
        self._handles.clear()

    @abstractmethod
    def is_hidden(self) -> bool:
        """Return whether the calls that are made now are not to be looked at."""

    @abstractmethod
    def note_hidden(self) -> None:
        """Note that a call is not looked at."""

    @abstractmethod
    def parameters(self, module: Any) -> Iterable[Any]:
        """Return the parameters of a module and of all inside it."""

    @abstractmethod
    def own_parameters(self, module: Any) -> dict[str, Any]:
        """Return the parameters that a module itself holds, by name."""

    def _install(self, prefix: str, module: Any) -> None:
        recorder, running, is_hidden = self._recorder, self._running, self.is_hidden
        parameters = {name: one for name, one in self.own_parameters(module).items() if one.requires_grad}
        gradients = self.gradients(recorder, prefix, parameters)
        names = positional_names(module, self.call_method)

        def begin(module: Any, args: Any, kwargs: Any) -> None:
            if not recorder.is_recording:
                return
            if is_hidden():
                self.note_hidden()
            else:
                gradients.expect()
                running.calls.append(self._begin(prefix, module, args, kwargs, names))

        def end(module: Any, args: Any, kwargs: Any, output: Any) -> None:
            if is_hidden():
                return
            # Recording may have been switched while the module ran.
            if all(call.module is not module for call in running.calls):
                return
            while running.calls[-1].module is not module:
                running.calls.pop().abandon()
            running.calls.pop().end(output)

        failed = partial(recorder.note_error, prefix)
        self._handles.append(module.register_forward_pre_hook(uncopied(guarded(begin, failed)), with_kwargs=True))
        self._handles.append(module.register_forward_hook(uncopied(guarded(end, failed)), **self.end_options))
        if recorder.directions.backward and recorder.directions.output:
            self._handles += gradients.install()

    def _begin(self, prefix: str, module: Any, args: Any, kwargs: Any, names: Sequence[str]) -> ModuleCall:
        call = ModuleCall(self._recorder, prefix, module, self._outside(sys._getframe(4)))
        call.begin(args, kwargs, names, self)
        self._recorder.modules.append(call.name)
        return call

    def _outside(self, frame: FrameType | None) -> FrameType | None:
        # The frames that run hooks say nothing and differ with the hooks that a model has.
        while frame is not None and frame.f_code.co_filename == self.hooks_run_in:
            frame = frame.f_back
        return frame


class _Running(threading.local):
    def __init__(self) -> None:
        self.calls: list[ModuleCall] = []


class ModuleCall(CallRecord):
    """The record of one module call; ``name`` is ``{prefix}.forward.{number}``."""

    __slots__ = ("module",)

    count = count_backward = "modules"

    def __init__(self, recorder: Recorder, prefix: str, module: Any, frame: FrameType | None) -> None:
        forward = f"{prefix}.forward"
        super().__init__(recorder, f"{forward}.{recorder.number(forward)}", frame)
        self.module = module

    def begin(self, args: Any, kwargs: Any, names: Sequence[str], hooks: ModuleHooks) -> None:
        """Take inputs and parameters as they are before the module runs; ``names`` are those of positional ones."""
        recorder = self._recorder
        directions = recorder.directions
        fed = _take(self.module)
        try:
            has_grad = directions.backward and recorder.is_grad_enabled()
            with recorder.quiet():
                is_admitted = recorder.filter.enter_module(self.name)
                if has_grad:
                    # Awaiting the parameters' gradients puts a module's record after those of what ran inside it.
                    self._inputs = recorder.inputs((args, kwargs), hooks.parameters(self.module))
                if is_admitted and directions.forward:
                    self._take_inputs(args, kwargs, lambda: hooks.own_parameters(self.module))
                    # A single one is what the module works on, whatever it is called.
                    if len(args) > 1 and names:
                        self._elements.details["positional"] = {"names": names[: len(args)]}
                    if fed is not None:
                        self._elements.details["fed"] = fed.details()
                        self._take_passed(fed)
        except Exception as error:
            self._record = self._inputs = None
            self._note_error_before(error)

    def _take_passed(self, fed: FedFrom) -> None:
        """Take what the program passed besides what the module was fed."""
        record, elements = self._record, self._elements
        if record is not None and "input_args" in record:
            record["passed_args"] = elements.sequence(fed.args, "passed.input")
            record["passed_kwargs"] = elements.mapping(fed.kwargs, "passed.kwargs")

    def end(self, output: Any) -> None:
        """Take the output, or that there is none because the module raised."""
        self._end(output, sys.exc_info()[1])

    def abandon(self) -> None:
        """Write that the module raised, where no hook ran when it did."""
        self._end(None, RuntimeError("the module raised"))

    def _end(self, output: Any, error: BaseException | None) -> None:
        recorder = self._recorder
        if recorder.modules and recorder.modules[-1] == self.name:
            recorder.modules.pop()
        try:
            recorder.filter.leave_module(self.name)
            with recorder.quiet():
                if error is None:
                    self._take_output(output, output)
                else:
                    self.fail(error)
        except Exception as problem:
            self._note_error_after(problem)


class ParameterGradients(ABC):
    """Records the gradients of a module's own parameters, once all of them arrived in a backward pass."""

    def __init__(self, recorder: Recorder, prefix: str, parameters: dict[str, Any]) -> None:
        self._recorder = recorder
        self._prefix = prefix
        self._parameters = parameters
        self._arrived: dict[str, Any] = {}
        self._expected_in: int | None = None

    @abstractmethod
    def watch(self, parameter: Any, arrive: Callable[[Any], None]) -> Any:
        """Register a function to call when a backward pass gives a parameter its gradient; return what undoes it."""

    @abstractmethod
    def gradient(self, argument: Any) -> Any:
        """Return the gradient that a hook was called for, None where there is none; ``argument`` is its argument."""

    def in_order(self, arrived: dict[str, Any]) -> dict[str, Any]:
        """Return the gradients in the order in which the record lists them: as they arrived."""
        return arrived

    def install(self) -> list[Any]:
        """Register the hooks and return what takes them off."""
        return [self.watch(parameter, self._hook(name)) for name, parameter in self._parameters.items()]

    def expect(self) -> None:
        """Note that the module was called: the gradients of this step are wanted, also when calls no longer are."""
        self._expected_in = self._recorder.period

    @property
    def _is_wanted(self) -> bool:
        recorder = self._recorder
        return recorder.is_recording or (
            self._expected_in is not None and recorder.accepts_gradients(self._expected_in)
        )

    def finish(self) -> None:
        """Write what arrived; a second time does nothing."""
        arrived, self._arrived = self._arrived, {}
        recorder = self._recorder
        if not arrived or not self._is_wanted:
            return
        self._expected_in = None
        prefix = f"{self._prefix}.parameters_grad"
        name = f"{prefix}.{recorder.number(prefix)}"
        if not recorder.filter.admits(name):
            return
        record: dict[str, Any] = {}
        if recorder.settings.task != "structure":
            with recorder.quiet():
                elements = recorder.elements(name)
                record = {key: elements.single(one, key) for key, one in self.in_order(arrived).items()}
        recorder.emit(name, record, None, "modules")

    def fail(self, error: Exception) -> None:
        """Report that the gradients could not be taken; those that came so far are dropped."""
        self._arrived = {}
        self._recorder.note_error(f"{self._prefix}.parameters_grad", error)

    def _hook(self, name: str) -> Callable[[Any], None]:
        def arrive(argument: Any) -> None:
            if not self._is_wanted:
                return
            gradient = self.gradient(argument)
            if gradient is not None:
                self._arrived[name] = gradient
            self._recorder.passes.at_end(self)
            if len(self._arrived) == len(self._parameters):
                self.finish()

        return guarded(arrive, self.fail)


def positional_names(module: Any, method: str) -> list[str]:
    """Return the names of the positional parameters of a module's own method, none where they are not known."""
    try:
        parameters = inspect.signature(getattr(module, method)).parameters.values()
    except (AttributeError, TypeError, ValueError):
        return []
    return [one.name for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]


@dataclass(frozen=True, slots=True)
class FedFrom:
    """The dump and the record that the inputs in some places (``input.0``, ``kwargs.mask``) of a call came from.

    ``args`` and ``kwargs`` are what the program passed: the work of the code before the module,
    which is recorded too.
    """

    dump: str
    record: str
    places: tuple[str, ...]
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    def details(self) -> dict[str, Any]:
        """Return what the call's own record says of it."""
        return {"dump": self.dump, "record": self.record, "places": list(self.places)}


class _HandedOver(threading.local):
    def __init__(self) -> None:
        self.latest: tuple[Any, FedFrom] | None = None


_handed_over = _HandedOver()


def hand_over(module: Any, fed: FedFrom) -> None:
    """Note what the call of a module that is about to be made was fed."""
    _handed_over.latest = (module, fed)


def forget() -> None:
    """Drop what no recording of this thread took: it holds the tensors of the last call that was fed."""
    _handed_over.latest = None


def _take(module: Any) -> FedFrom | None:
    """Return what the call of a module that is about to be made was fed, once; None where it was not."""
    latest = _handed_over.latest
    if latest is None or latest[0] is not module:
        return None
    _handed_over.latest = None
    return latest[1]
