"""Which part of a step is running: the optimizer, or the clipping of gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch.nn.utils.clip_grad as clip_grad
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.utils.hooks import RemovableHandle

from msprobe_hooks.torch.interposition import Interposition
from msprobe_hooks.torch.recorder import TorchRecorder


class Phases:
    """Marks the records of optimizers and gradient clipping between ``begin`` and ``end``."""

    def __init__(self, recorder: TorchRecorder) -> None:
        self._recorder = recorder
        self._handles: list[RemovableHandle] = []
        self._around: list[Interposition] = []

    def begin(self) -> None:
        """Watch optimizers and clipping."""
        self._handles = [
            register_optimizer_step_pre_hook(lambda *_: self._recorder.enter_phase("optimizer")),
            register_optimizer_step_post_hook(lambda *_: self._recorder.enter_phase(None)),
        ]
        self._around = [
            Interposition(function, self._clip)
            for name in ("clip_grad_norm_", "clip_grad_value_", "clip_grad_norm")
            if (function := getattr(clip_grad, name, None)) is not None
        ]

    def end(self) -> None:
        """Stop watching."""
        for handle in self._handles:
            handle.remove()
        for interposed in self._around:
            interposed.remove()
        self._handles, self._around = [], []

    def _clip(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        self._recorder.enter_phase("clip_grad")
        try:
            return function(*args, **kwargs)
        finally:
            self._recorder.enter_phase(None)
