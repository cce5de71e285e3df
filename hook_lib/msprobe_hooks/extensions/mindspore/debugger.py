"""``PrecisionDebugger`` for MindSpore, the callback that drives it through a training, and the seeds of one."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

import mindspore
from mindspore import nn, ops
from mindspore.ops.function import nn_func
from mindspore.train import Callback

from msprobe_hooks import debugger
from msprobe_hooks.recording.seeds import seed_python
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


def seed_all(seed: int = 1234, mode: bool = False, rm_dropout: bool = True) -> None:
    """Seed Python, numpy and MindSpore; ``mode`` asks for deterministic kernels.

    ``rm_dropout`` lets every dropout keep all elements, compiled ones too, but what was compiled before this call, and
    primitives that were made before it outside of MindSpore's own cells. Raises ConfigError for a wrong argument.
    """
    seed_python(seed, mode=mode, rm_dropout=rm_dropout)
    os.environ["HCCL_DETERMINISTIC"] = str(mode).lower()
    mindspore.set_seed(seed)
    mindspore.set_deterministic(mode)
    if rm_dropout:
        _silence_dropout()


@functools.cache
def _silence_dropout() -> None:
    for primitive in (ops.Dropout, ops.Dropout2D, ops.Dropout3D):
        primitive.__init__ = _with_keep_prob_one(primitive.__init__)
    # Cells that were made before hold primitives that drop.
    for cell in (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d):
        cell.construct = _construct_unchanged
    # What mint's functions and cells call, each where it is looked up.
    for name in ("func_dropout_ext_op", "dropout2d_ext_op"):
        for module in (nn_func, ops.auto_generate):
            if hasattr(module, name):
                setattr(module, name, _unchanged)


def _with_keep_prob_one(make: Callable[..., None]) -> Callable[..., None]:
    # Functions too make a primitive for each call. A function in their place would have no source for the compiler.
    @functools.wraps(make)
    def make_keeping(primitive: Any, keep_prob: float = 0.5, *args: Any, **kwargs: Any) -> None:
        make(primitive, 1.0, *args, **kwargs)

    return make_keeping


def _construct_unchanged(self: nn.Cell, x: Any) -> Any:
    return x


def _unchanged(tensor: Any, *_: Any) -> Any:
    return tensor
