"""Installing and removing what observes, around a recorder."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, Protocol

import torch.distributed as dist
from torch import nn
from torch._C import (
    _get_function_stack_at,
    _len_torch_function_stack,
    _pop_torch_function_stack,
    _push_on_torch_function_stack,
)

from msprobe_hooks.errors import ConfigError
from msprobe_hooks.recording.config import Settings
from msprobe_hooks.recording.processes import process_rank
from msprobe_hooks.recording.summary import Summary
from msprobe_hooks.torch.apis import api_table
from msprobe_hooks.torch.aten import AtenMode
from msprobe_hooks.torch.calls import CallMode
from msprobe_hooks.torch.custom import CustomApi
from msprobe_hooks.torch.modules import ModuleHooks, named_submodules
from msprobe_hooks.torch.phases import Phases
from msprobe_hooks.torch.recorder import TorchRecorder
from msprobe_hooks.torch.saves import save
from msprobe_hooks.torch.threads import NewThreads

Model = nn.Module | Sequence[nn.Module]


class Observer(Protocol):
    """Something that is on between ``begin`` and ``end``."""

    def begin(self) -> None:
        """Start observing."""

    def end(self) -> None:
        """Stop observing and leave everything as it was."""


class Session:
    """A recording of this process: start, stop, step, close."""

    def __init__(self, settings: Settings, model: Model | None = None) -> None:
        self.recorder = TorchRecorder(settings)
        self._observers = _observers(self.recorder)
        self._model = model
        self._hooks: ModuleHooks | None = None
        self._is_on = False
        self._is_wanted = False
        self._is_module_dump = False

    @property
    def summary(self) -> Summary:
        """What was recorded so far."""
        return self.recorder.summary

    def start(self, model: Model | None = None) -> None:
        """Record from here on, where step and rank are wanted.

        Raises ConfigError where modules are to be recorded and there is no model, RecordingError where the dump cannot
        be written.
        """
        if self._is_on:
            return
        to_hook = self._model_to_hook(model)
        self._is_wanted = True
        if not self.recorder.start(process_rank()):
            return
        if to_hook is not None:
            self._model = to_hook
            self._hooks = ModuleHooks(self.recorder, named_submodules(to_hook))
        self._is_on = True
        if not self._is_module_dump:
            self._begin_observers()

    def stop(self) -> None:
        """Pause; the files are complete."""
        self._is_wanted = False
        if self._is_on:
            self._is_on = False
            if not self._is_module_dump:
                self._end_observers()
        self.recorder.stop()

    def step(self) -> None:
        """End a step. What comes is recorded into the next folder, after the next ``start`` where it was stopped."""
        was_wanted = self._is_wanted
        self.stop()
        self.recorder.next_step()
        if was_wanted:
            self.start()

    def dump_module(self, module: nn.Module, name: str) -> None:
        """Record only this module's calls, as ``Module.{name}.{Class}``, until ``end_module_dump``.

        Raises ConfigError where modules are recorded already.
        """
        if not isinstance(module, nn.Module):
            raise ConfigError("module", module, "a torch.nn.Module")
        if self._hooks is not None:
            raise ConfigError("module", type(module).__name__, "a module that no hooks of this recording are on")
        self._hooks = ModuleHooks(self.recorder, [(f"Module.{name}.{type(module).__name__}", module)])
        self._is_module_dump = True
        if self._is_on:
            self._end_observers()

    def end_module_dump(self) -> None:
        """Take the module's hooks off and record calls again."""
        if self._is_module_dump and self._hooks is not None:
            self._hooks.remove()
            self._hooks = None
            self._is_module_dump = False
            if self._is_on:
                self._begin_observers()

    def register_custom_api(self, module: Any, api: str, api_prefix: str | None = None) -> None:
        """Record calls of ``module.api`` too, as ``{prefix}.{api}``; the prefix is the module's name by default.

        Raises ConfigError where there is no such function.
        """
        self.restore_custom_api(module, api)
        custom = CustomApi(self.recorder, module, api, api_prefix)
        self._observers.append(custom)
        if self._is_on:
            custom.begin()

    def restore_custom_api(self, module: Any, api: str) -> None:
        """Undo ``register_custom_api``; does nothing where it was not done."""
        for observer in list(self._observers):
            if isinstance(observer, CustomApi) and observer.is_for(module, api):
                self._observers.remove(observer)
                if self._is_on:
                    observer.end()

    def save(self, variable: Any, name: str, save_backward: bool = True) -> None:
        """Record a variable by name; level debug."""
        save(self.recorder, variable, name, save_backward)

    def close(self) -> Summary:
        """Finish, take the hooks off and return what was recorded."""
        self.stop()
        if self._hooks is not None:
            self._hooks.remove()
            self._hooks = None
        return self.recorder.close()

    def _begin_observers(self) -> None:
        for observer in self._observers:
            observer.begin()

    def _end_observers(self) -> None:
        for observer in reversed(self._observers):
            observer.end()

    def _model_to_hook(self, model: Model | None) -> Model | None:
        settings = self.recorder.settings
        if not settings.records_modules or self._hooks is not None:
            return None
        model = model if model is not None else self._model
        if model is None:
            allowed = f"a torch.nn.Module or a list of them, which level {settings.level} needs"
            raise ConfigError("model", None, allowed)
        models = [model] if isinstance(model, nn.Module) else model
        if not isinstance(models, (list, tuple)) or not all(isinstance(one, nn.Module) for one in models):
            raise ConfigError("model", model, "a torch.nn.Module or a list or tuple of them")
        return model


def _observers(recorder: TorchRecorder) -> list[Observer]:
    settings = recorder.settings
    observers: list[Observer] = []
    if settings.records_apis:
        mode = CallMode(recorder, api_table(settings.risk_level))
        observers += [Calls(mode), NewThreads(mode)]
        if dist.is_available():
            # torch.distributed is slow to import and absent from some builds.
            from msprobe_hooks.torch.collectives import Collectives

            observers.append(Collectives(recorder))
    if settings.level != "debug":
        observers.append(Phases(recorder))
    if settings.level == "aten":
        observers.append(Operators(recorder))
    return observers


class Calls:
    """The mode on the stack of the thread that begins."""

    def __init__(self, mode: CallMode) -> None:
        self._mode = mode

    def begin(self) -> None:
        """Put the mode on top."""
        _push_on_torch_function_stack(self._mode)

    def end(self) -> None:
        """Take the mode off, wherever it is by now."""
        places = range(_len_torch_function_stack())
        if all(_get_function_stack_at(place) is not self._mode for place in places):
            return
        above = []
        while (top := _pop_torch_function_stack()) is not self._mode:
            above.append(top)
        for other in reversed(above):
            _push_on_torch_function_stack(other)


class Operators:
    """The dispatch mode of level aten, on the thread that begins."""

    def __init__(self, recorder: TorchRecorder) -> None:
        self._mode = AtenMode(recorder)
        self._thread = 0

    def begin(self) -> None:
        """Enter the mode."""
        self._thread = threading.get_ident()
        self._mode.__enter__()  # type: ignore[no-untyped-call]

    def end(self) -> None:
        """Leave the mode; it must be the last one entered."""
        if self._thread == threading.get_ident():
            self._mode.__exit__(None, None, None)  # type: ignore[no-untyped-call]
