"""The session of PyTorch: observers of calls, collectives, optimizer phases and operators."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch.distributed as dist
import torch.nn.utils.clip_grad as clip_grad
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils.hooks import RemovableHandle

from msprobe_hooks.errors import ConfigError
from msprobe_hooks.recording.config import Settings
from msprobe_hooks.recording.interposition import Interposition
from msprobe_hooks.recording.modules import prefixed
from msprobe_hooks.recording.session import Model, Observer, Session
from msprobe_hooks.torch.apis import api_table
from msprobe_hooks.torch.call_mode import NewThreads, ThisThread
from msprobe_hooks.torch.modules import ModuleHooks
from msprobe_hooks.torch.recorder import CustomApi, TorchRecorder
from msprobe_hooks.torch.recording_mode import AtenMode, RecordingMode


class Phases:
    """Marks the records of optimizers and gradient clipping between ``begin`` and ``end``."""

    def __init__(self, recorder: TorchRecorder) -> None:
        self._recorder = recorder
        self._handles: list[RemovableHandle] = []
        self._around: list[Interposition] = []

    def begin(self) -> None:
        """Watch optimizers and clipping."""
        self._handles = [
            register_optimizer_step_pre_hook(self._step),
            register_optimizer_step_post_hook(lambda *_: self._recorder.enter_phase(None)),
        ]
        for function in _clipping():
            try:
                self._around.append(Interposition(function, partial(self._run, "clip_grad", None)))
            except TypeError as error:
                self._recorder.summary.note_error("clip_grad", error)

    def end(self) -> None:
        """Stop watching."""
        for handle in self._handles:
            handle.remove()
        for interposed in self._around:
            interposed.remove()
        self._handles, self._around = [], []

    def _step(self, optimizer: Any, args: Any, kwargs: Any) -> tuple[Any, Any] | None:
        """Enter a step. What its closure runs, in Lightning all of a training step, is outside of it."""
        self._recorder.enter_phase("optimizer")
        is_named = kwargs.get("closure") is not None
        closure = kwargs["closure"] if is_named else args[1] if len(args) > 1 else None
        if not callable(closure):
            return None
        run = partial(self._run, None, "optimizer", closure, (), {})
        return (args, {**kwargs, "closure": run}) if is_named else ((args[0], run, *args[2:]), kwargs)

    def _run(self, phase: str | None, then: str | None, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        self._recorder.enter_phase(phase)
        try:
            return function(*args, **kwargs)
        finally:
            self._recorder.enter_phase(then)


def _clipping() -> Iterator[Callable[..., Any]]:
    for name in ("clip_grad_norm_", "clip_grad_value_", "clip_grad_norm"):
        function = getattr(clip_grad, name, None)
        if function is not None:
            yield function
    # A program that trains with Megatron has imported it.
    megatron = sys.modules.get("megatron.core.optimizer.optimizer") or sys.modules.get("megatron.core.optimizer")
    optimizer = getattr(megatron, "MegatronOptimizer", None)
    if optimizer is not None:
        yield optimizer.clip_grad_norm


def process_rank() -> int | None:
    """Return this process's rank, None where no process group is initialised."""
    return dist.get_rank() if dist.is_available() and dist.is_initialized() else None


class TorchSession(Session):
    """A recording of what runs in PyTorch."""

    recorder: TorchRecorder
    module_class = nn.Module
    module_name = "torch.nn.Module"

    def __init__(self, settings: Settings, model: Model | None = None, recorder: TorchRecorder | None = None) -> None:
        recorder = recorder or TorchRecorder(settings)
        super().__init__(recorder, _observers(recorder), model)
        self._module_dump: ModuleHooks | None = None

    def rank(self) -> int | None:
        """Return this process's rank, None where no process group is initialised."""
        return process_rank()

    def hooks_on(self, model: Model) -> ModuleHooks:
        """Register hooks on all modules inside a model."""
        return ModuleHooks(self.recorder, prefixed(model, "Module", lambda one: one.named_modules()))

    def custom_api(self, module: Any, api: str, qualified: str) -> Observer:
        """Return what records calls of ``module.api``."""
        return CustomApi(self.recorder, module, api, qualified)

    def dump_module(self, module: nn.Module, name: str) -> None:
        """Record only this module's calls, as ``Module.{name}.{Class}``, until ``end_module_dump``.

        Raises ConfigError where modules are recorded already.
        """
        if not isinstance(module, nn.Module):
            raise ConfigError("module", module, "a torch.nn.Module")
        if self._hooks:
            raise ConfigError("module", type(module).__name__, "a module without hooks of this recording")
        hooks = ModuleHooks(self.recorder, [(f"Module.{name}.{type(module).__name__}", module)])
        self._hooks.append(hooks)
        if self._is_on:
            self._end_observers()
        self._module_dump = hooks

    def end_module_dump(self) -> None:
        """Take the module's hooks off and record calls again."""
        if self._module_dump is not None:
            self._module_dump.remove()
            self._hooks.remove(self._module_dump)
            self._module_dump = None
            if self._is_on:
                self._begin_observers()

    @property
    def _is_observing(self) -> bool:
        return super()._is_observing and self._module_dump is None

    def _begin_observers(self) -> None:
        if self._module_dump is None:
            super()._begin_observers()

    def _end_observers(self) -> None:
        if self._module_dump is None:
            super()._end_observers()

    def _take_model(self, model: Model | None) -> None:
        # At the other levels, and while one module is recorded alone, a model is ignored.
        if self.recorder.settings.records_modules and self._module_dump is None:
            super()._take_model(model)

    def _hook_model(self) -> None:
        if self._module_dump is None:
            super()._hook_model()


def _observers(recorder: TorchRecorder) -> list[Observer]:
    settings = recorder.settings
    observers: list[Observer] = []
    if settings.records_apis:
        functional = None
        if dist.is_available():
            # torch.distributed is slow to import and absent from some builds.
            from msprobe_hooks.torch.collectives import Collectives, FunctionalCollectives

            observers.append(Collectives(recorder))
            functional = FunctionalCollectives(recorder)
        mode = RecordingMode(recorder, api_table(settings.risk_level), functional)
        observers = [ThisThread(mode), NewThreads(mode), *observers]
    if settings.level != "debug":
        observers.append(Phases(recorder))
    if settings.level == "aten":
        observers.append(Operators(recorder))
    return observers


class Operators:
    """A dispatch mode of level aten, on the thread that begins."""

    def __init__(self, recorder: TorchRecorder, mode: type[AtenMode] = AtenMode) -> None:
        self._mode = mode(recorder)
        self._thread = 0

    def begin(self) -> None:
        """Enter the mode."""
        self._mode.__enter__()  # type: ignore[no-untyped-call]
        self._thread = threading.get_ident()

    def end(self) -> None:
        """Leave the mode; it must be the last one entered."""
        if self._thread == threading.get_ident():
            self._thread = 0
            self._mode.__exit__(None, None, None)  # type: ignore[no-untyped-call]
