"""The session of MindSpore: what observes functions, primitives, cells and compiled functions."""

from __future__ import annotations

from typing import Any

from mindspore import nn

from msprobe_hooks.errors import ConfigError
from msprobe_hooks.mindspore.calls import Calls, Primitives, recording
from msprobe_hooks.mindspore.cells import CellHooks
from msprobe_hooks.mindspore.context import process_rank, require_pynative
from msprobe_hooks.mindspore.jit import JitCalls, recorded
from msprobe_hooks.mindspore.recorder import MindSporeRecorder
from msprobe_hooks.recording.config import Settings
from msprobe_hooks.recording.modules import prefixed
from msprobe_hooks.recording.session import Model, Observer, Session


class MindSporeSession(Session):
    """A recording of what runs in MindSpore's dynamic graph mode (PyNative)."""

    recorder: MindSporeRecorder
    module_class = nn.Cell
    module_name = "mindspore.nn.Cell"

    def __init__(
        self, settings: Settings, model: Model | None = None, recorder: MindSporeRecorder | None = None
    ) -> None:
        if settings.level in ("aten", "debug"):
            raise ConfigError("level", settings.level, "L0, L1 or mix, for MindSpore")
        recorder = recorder or MindSporeRecorder(settings)
        observers: list[Observer] = []
        if settings.records_apis:
            observers += [Calls(recording(recorder)), JitCalls(recorded(recorder), observers)]
        super().__init__(recorder, observers, model)
        self._has_primitives = False

    def rank(self) -> int | None:
        """Return this process's rank, None where communication is not initialised."""
        return process_rank()

    def hooks_on(self, model: Model) -> CellHooks:
        """Put hooks on all cells inside a model."""
        return CellHooks(self.recorder, prefixed(model, "Cell", lambda one: one.cells_and_names()))

    def custom_api(self, module: Any, api: str, qualified: str) -> Observer:
        """Return what records calls of ``module.api``."""
        return Calls(recording(self.recorder), lambda: [(module, api, qualified)])

    def start(self, model: Model | None = None, rank: int | None = None) -> None:
        """Record from here on, where step and rank are wanted.

        Raises ConfigError where cells are to be recorded and there is no model, or MindSpore is not in PyNative mode;
        RecordingError where the dump cannot be written.
        """
        if not self._is_on:
            require_pynative()
        super().start(model, rank)

    def _hook_model(self) -> None:
        super()._hook_model()
        model = self._model
        if model is not None and self.recorder.settings.records_apis and not self._has_primitives:
            self._has_primitives = True
            self._observers.append(Primitives(recording(self.recorder), model))
