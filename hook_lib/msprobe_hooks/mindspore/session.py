"""Installing and removing what observes, around a recorder."""

from __future__ import annotations

from typing import Any

import mindspore
from mindspore import nn
from mindspore.communication import GlobalComm, get_rank

from msprobe_hooks.errors import ConfigError
from msprobe_hooks.mindspore.calls import Calls, Primitives
from msprobe_hooks.mindspore.cells import CellHooks, Model, named_cells
from msprobe_hooks.mindspore.jit import JitCalls
from msprobe_hooks.mindspore.recorder import MindSporeRecorder
from msprobe_hooks.recording.config import Settings
from msprobe_hooks.recording.summary import Summary


class Session:
    """A recording of this process: start, stop, step, close."""

    def __init__(self, settings: Settings, model: Model | None = None) -> None:
        if settings.level in ("aten", "debug"):
            raise ConfigError("level", settings.level, "L0, L1 or mix, for MindSpore")
        self.recorder = MindSporeRecorder(settings)
        self._model = model
        self._observers: list[Calls | Primitives] = []
        self._jit = JitCalls(self.recorder, self._observers)
        if settings.records_apis:
            self._observers.append(Calls(self.recorder))
        self._custom: dict[tuple[int, str], Calls] = {}
        self._hooks: CellHooks | None = None
        self._has_primitives = False
        self._is_on = False
        self._is_wanted = False

    @property
    def summary(self) -> Summary:
        """What was recorded so far."""
        return self.recorder.summary

    def start(self, model: Model | None = None) -> None:
        """Record from here on, where step and rank are wanted.

        Raises ConfigError where cells are to be recorded and there is no model, or MindSpore is not in PyNative mode;
        RecordingError where the dump cannot be written.
        """
        if self._is_on:
            return
        if mindspore.get_context("mode") != mindspore.PYNATIVE_MODE:
            raise ConfigError("mode", "GRAPH_MODE", "mindspore.PYNATIVE_MODE: graphs run where no call can be seen")
        self._model = self._checked_model(model)
        self._is_wanted = True
        if not self.recorder.start(_rank()):
            return
        self._hook_model()
        self._is_on = True
        for observer in self._observers:
            observer.begin()
        if self.recorder.settings.records_apis:
            self._jit.begin()

    def stop(self) -> None:
        """Pause; the files are complete."""
        self._is_wanted = False
        if self._is_on:
            self._is_on = False
            if self.recorder.settings.records_apis:
                self._jit.end()
            for observer in reversed(self._observers):
                observer.end()
        self.recorder.stop()

    def step(self) -> None:
        """End a step. What comes is recorded into the next folder, after the next ``start`` where it was stopped."""
        was_wanted = self._is_wanted
        self.stop()
        self.recorder.next_step()
        if was_wanted:
            self.start()

    def register_custom_api(self, module: Any, api: str, api_prefix: str | None = None) -> None:
        """Record calls of ``module.api`` too, as ``{prefix}.{api}``; the prefix is the module's name by default.

        Raises ConfigError where there is no such function.
        """
        if not callable(getattr(module, api, None)):
            raise ConfigError("api", api, f"the name of a function of {getattr(module, '__name__', module)!r}")
        self.restore_custom_api(module, api)
        qualified = f"{api_prefix or getattr(module, '__name__', 'Custom')}.{api}"
        custom = self._custom[id(module), api] = Calls(self.recorder, lambda: [(module, api, qualified)])
        self._observers.append(custom)
        if self._is_on:
            custom.begin()

    def restore_custom_api(self, module: Any, api: str) -> None:
        """Undo ``register_custom_api``; does nothing where it was not done."""
        custom = self._custom.pop((id(module), api), None)
        if custom is not None:
            self._observers.remove(custom)
            custom.end()

    def close(self) -> Summary:
        """Finish, take the hooks off and return what was recorded."""
        self.stop()
        if self._hooks is not None:
            self._hooks.remove()
            self._hooks = None
        return self.recorder.close()

    def _hook_model(self) -> None:
        model, settings = self._model, self.recorder.settings
        if model is None:
            return
        if settings.records_modules and self._hooks is None:
            self._hooks = CellHooks(self.recorder, named_cells(model))
        if settings.records_apis and not self._has_primitives:
            self._has_primitives = True
            models = [model] if isinstance(model, nn.Cell) else model
            cells = [cell for one in models for _, cell in one.cells_and_names()]
            self._observers.append(Primitives(self.recorder, cells))

    def _checked_model(self, given: Any) -> Model | None:
        model: Any = given if given is not None else self._model
        if model is None:
            if self.recorder.settings.records_modules:
                allowed = f"a mindspore.nn.Cell or a list of them, which level {self.recorder.settings.level} needs"
                raise ConfigError("model", None, allowed)
            return None
        models = [model] if isinstance(model, nn.Cell) else model
        if not isinstance(models, (list, tuple)) or not all(isinstance(one, nn.Cell) for one in models):
            raise ConfigError("model", model, "a mindspore.nn.Cell or a list or tuple of them")
        return model


def _rank() -> int | None:
    return int(get_rank()) if GlobalComm.INITED else None
