"""``PrecisionDebugger`` for MindSpore, and the callback that drives it through a training."""

from __future__ import annotations

from typing import Any

from mindspore.train import Callback

from msprobe_hooks import debugger
from msprobe_hooks.recording.session import Model


class PrecisionDebugger(debugger.PrecisionDebugger):
    """Records MindSpore's PyNative mode; used as the one for PyTorch. Levels are L0, L1, mix and debug."""

    _framework = "mindspore"
    _instance = None


class MsprobeStep(Callback):  # type: ignore[misc]
    """Records each step of ``mindspore.train.Model.train``: starts where it begins, stops and counts where it ends.

    ``model`` holds the cells to record at the levels L0 and mix; by default the network that is trained.
    """

    def __init__(self, debugger: PrecisionDebugger, model: Model | None = None) -> None:
        super().__init__()
        self._debugger = debugger
        self._model = model

    def on_train_step_begin(self, run_context: Any) -> None:
        """Start recording."""
        self._debugger.start(self._model or run_context.original_args().network)

    def on_train_step_end(self, run_context: Any) -> None:
        """Stop, and end the step."""
        self._debugger.stop()
        self._debugger.step()
