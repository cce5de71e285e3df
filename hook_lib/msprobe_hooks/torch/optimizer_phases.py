"""Which part of a step is running: the optimizer, or the clipping of gradients."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch.nn.utils.clip_grad as clip_grad
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.utils.hooks import RemovableHandle

from msprobe_hooks.recording.interposition import Interposition
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
        for function in _clipping():
            try:
                self._around.append(Interposition(function, self._clip))
            except TypeError as error:
                self._recorder.summary.note_error("clip_grad", error)

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
